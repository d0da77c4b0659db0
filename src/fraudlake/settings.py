"""Settings: flags, environment, ``fraudlake.toml`` and defaults become one typed, validated object."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from fraudlake import tables
from fraudlake.durations import Duration
from fraudlake.errors import UsageError
from fraudlake.rules.kinds import Rule
from fraudlake.rules.small_then_large import SmallThenLargeRule

ENV_PREFIX = "FRAUDLAKE_"
_NAME = r"^[\w-]+$"
_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
_SECRET = r"^[\w.@-]+/[\w.@-]+$"  # noqa: S105
_MOST_INT, _MOST_LONG = 2**31 - 1, 2**63 - 1
DEFAULT_FILE = Path("fraudlake.toml")
DEFINITION = ("columns", "ordering", "max_out_of_orderness", "buckets", "clustering")
"""The settings that say what a lake is: it records them (:mod:`fraudlake.lake.definition`)."""


def size_in_bytes(text: str) -> int:
    """Read a size such as ``512m``, for settings of Spark that accept only a number of bytes."""
    return int(text.rstrip("kmgt")) << 10 * " kmgt".index(text[-1] if text[-1] in "kmgt" else " ")


def _size(text: str) -> str:
    """Check a size."""
    if not re.fullmatch("[1-9][0-9]{0,18}[kmgt]?", text) or size_in_bytes(text) > _MOST_LONG:
        raise ValueError("must be a size such as '512k', '128m' or '2g'")
    return text


Size = Annotated[str, AfterValidator(_size)]


def _day(text: str) -> str:
    """Check a day."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("must be a day such as '2026-03-07'") from None


Day = Annotated[str, AfterValidator(_day)]


def _topic(name: str) -> str:
    """Check what Kafka's names of topics must be beside their characters."""
    if name in (".", ".."):
        raise ValueError("must be a name that Kafka allows, not '.' or '..'")
    return name


Topic = Annotated[str, AfterValidator(_topic)]


MAY_WARN = (
    "amount_is_positive",
    "timestamp_is_not_in_seconds",
    "timestamp_is_not_in_milliseconds",
    "timestamp_is_not_in_microseconds",
    "timestamp_is_not_in_nanoseconds",
    "timestamp_is_not_before_floor",
    "timestamp_is_not_in_future",
)
"""The quality rules that may only warn: the steps after silver cannot work without the others."""


def _warnings(value: object) -> object:
    """Read a list of rule names, or one text with commas between them."""
    names = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    for name in names if isinstance(names, list | tuple) else ():
        if name not in MAY_WARN:
            raise ValueError(f"'{name}' cannot be a warning: only {', '.join(MAY_WARN)} can")
    return names


_SET_BY_SPARK = {"auto.offset.reset", "enable.auto.commit", "interceptor.classes"}
_SET_BY_SPARK |= {f"{part}.{way}serializer" for part in ("key", "value") for way in ("", "de")}


def _kafka_options(value: object) -> object:
    """Give options of the Kafka client Kafka's own names; values, which may be passwords, appear in no message.

    ``kafka.security.protocol``, Spark's name, and ``security.protocol`` are the same option. A TOML file may quote
    such names, or write them as nested tables.
    """
    if not isinstance(value, dict):
        raise ValueError("must be a table of options for the Kafka client")
    options: dict[str, object] = {}
    for given_name, option in _flattened(value):
        name = given_name.removeprefix("kafka.")
        if name in options:
            raise ValueError(f"'{name}' is given twice, with and without 'kafka.' before it")
        if name == "bootstrap.servers":
            raise ValueError("'bootstrap.servers' has a setting of its own: bootstrap_servers")
        if name in _SET_BY_SPARK:
            raise ValueError(f"'{name}' belongs to Spark and cannot be set")
        if not isinstance(option, str | int | float | SecretStr):
            raise ValueError(f"'{name}' must be a text, a number or a boolean")
        is_secret, text = isinstance(option, SecretStr), str(option)
        options[name] = option if is_secret else text.lower() if isinstance(option, bool) else text
    return options


def _flattened(options: dict[str, object], prefix: str = "") -> list[tuple[str, object]]:
    flat = []
    for name, value in options.items():
        flat += _flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return flat


KafkaOptions = Annotated[dict[str, SecretStr], BeforeValidator(_kafka_options)]


def _spark_options(value: object) -> object:
    """Read Spark's configuration by name, as JSON or as a table, whose names a TOML file may write as nested tables."""
    try:
        given = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ValueError('must be JSON such as {"spark.sql.adaptive.enabled": "false"}')
    options = {}
    for name, option in _flattened(given):
        if not name.startswith("spark."):
            raise ValueError(f"'{name}' is no name of Spark's configuration, which begin with 'spark.'")
        if not isinstance(option, str | int | float):
            raise ValueError(f"'{name}' must be a text, a number or a boolean")
        options[name] = str(option).lower() if isinstance(option, bool) else str(option)
    return options


def _java_options(text: str) -> str:
    """Check options of Java, which Spark reads as a shell reads words."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError("has a quote without its other one") from None
    if any(word.startswith("-Xmx") for word in words):
        raise ValueError("-Xmx has a setting of its own: driver_memory")
    return text


SparkOptions = Annotated[dict[str, str], NoDecode, BeforeValidator(_spark_options)]
JavaOptions = Annotated[str, AfterValidator(_java_options)]


def _starting_offsets(value: str) -> str:
    """Check ``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -2}}`` (-2: earliest, -1: latest)."""
    if value in ("earliest", "latest"):
        return value
    message = """must be 'earliest', 'latest' or offsets by partition such as '{"fraud-events": {"0": 23}}'"""
    try:
        topics = json.loads(value)
        offsets = [(int(number), offset) for topic in topics.values() for number, offset in topic.items()]
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(message) from None
    in_range = (
        type(offset) is int and 0 <= number <= _MOST_INT and -2 <= offset <= _MOST_LONG for number, offset in offsets
    )
    if not offsets or not all(in_range):
        raise ValueError(message)
    return value


_OWN_FIELDS = (*tables.PAYLOAD, "ts")
"""The fields that bronze has columns for; ``ts`` is another name of ``dt``."""


class DeclaredColumn(BaseModel):
    """A further field of the payload, which bronze and silver have a column for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(alias="from", min_length=1)
    """The field's name in the payload."""
    type: Annotated[
        Literal["string", "bigint", "double", "boolean", "timestamp"],
        BeforeValidator(lambda name: "bigint" if name == "long" else name),
    ]
    nullable: bool = True
    """Whether a row without a value is valid."""


def _columns(value: object) -> object:
    """Read columns by name, as a table or as JSON; ``kind = "string"`` is short for its type."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("must be JSON") from None
    if not isinstance(value, dict):
        raise ValueError('must be a table of columns, such as kind = "string"')
    reserved = {name.lower() for name in tables.RESERVED_NAMES}
    columns: dict[str, object] = {}
    for name, column in value.items():
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise ValueError(f"'{name}' must be of letters, digits and underscores, and begin with a letter")
        if name.lower() in reserved:
            raise ValueError(f"'{name}' is a column of the lake's own: name it otherwise, and the field in 'from'")
        if name.lower() in (other.lower() for other in columns):
            raise ValueError(f"'{name}' is declared twice, as names in other case are the same: rename one")
        if not isinstance(column, str | dict | DeclaredColumn):
            raise ValueError(f"'{name}' must be a type, such as 'string', or a table of 'from', 'type' and 'nullable'")
        given = {"type": column} if isinstance(column, str) else column
        columns[name] = {"from": name, **given} if isinstance(given, dict) else given
    return columns


def _fields_are_distinct(columns: dict[str, DeclaredColumn]) -> dict[str, DeclaredColumn]:
    taken = {field.lower(): f"a field of Flink's own ({', '.join(_OWN_FIELDS)})" for field in _OWN_FIELDS}
    for name, column in columns.items():
        if column.field.lower() in taken:
            raise ValueError(
                f"'{name}' is taken from '{column.field}', which is {taken[column.field.lower()]}: take another field"
            )
        taken[column.field.lower()] = f"taken for '{name}' already"
    return columns


Columns = Annotated[
    dict[str, DeclaredColumn], NoDecode, BeforeValidator(_columns), AfterValidator(_fields_are_distinct)
]


def _row_retention(value: object) -> object:
    """Read limits by table, as a table or as JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise ValueError('must be JSON such as {"silver_transactions": "400 days"}') from None


RowRetention = Annotated[
    dict[str, Annotated[Duration, Field(ge=timedelta(days=1))]], NoDecode, BeforeValidator(_row_retention)
]


SECRETS = ("kafka_options", "webhook_url", "webhook_secret", "jdbc_url")
"""Settings whose values are never shown."""


def require_safe_url(url: SecretStr, allow_http: bool) -> None:
    """Refuse a webhook's address without TLS, outside this machine and unless it is allowed; it is not shown.

    Raises:
        ValueError: the address is refused, or is none.
    """
    try:
        parts = urlsplit(url.get_secret_value())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("webhook_url must be an address such as https://alerts.example.com/fraud")
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise ValueError("webhook_url must be https, unless webhook_allow_http is true or it is on this machine")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class Settings(BaseSettings):
    """All settings. Made once, at the entry point, by :func:`load`, and passed on.

    Durations are read as ``"10 seconds"``; amounts are in the account's currency.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        env_ignore_empty=True,
        allow_inf_nan=False,
    )

    lake: Path = Field(Path("lake"), description="Folder of the local lake.")
    catalog: str | None = Field(None, pattern=_NAME, description="Unity Catalog's catalog of a lake in a workspace.")
    # Pydantic reserves the name `schema`, by which users know this setting.
    schema_name: str | None = Field(
        None, pattern=_NAME, validation_alias="fraudlake_schema", description="Schema of a lake in a workspace."
    )
    landing: str | None = Field(
        None, description="Folder in which Flink's files land (default: LAKE/landing, or the volume landing)."
    )
    checkpoints: str | None = Field(
        None, description="Folder of the checkpoints (default: LAKE/checkpoints, or the volume checkpoints)."
    )
    experiment: str | None = Field(
        None, description="MLflow experiment (default: the model's name; in a workspace /Shared/ and that)."
    )

    source: Literal["files", "kafka"] = Field("files", description="Where transactions come from: files or kafka.")
    bootstrap_servers: str | None = Field(
        None, pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$", description="Kafka brokers: HOST:PORT, several with commas."
    )
    topic: Topic = Field("fraud-events", pattern=_TOPIC, description="Kafka topic to read.")
    starting_offsets: Annotated[str, AfterValidator(_starting_offsets)] = Field(
        "earliest", description="Where a new Kafka stream begins: earliest, latest, or offsets as JSON."
    )
    max_offsets_per_trigger: int = Field(
        500_000, ge=1, le=_MOST_LONG, description="Maximum number of messages in a micro-batch."
    )
    fail_on_data_loss: bool = Field(
        True, description="Stop where Kafka removed messages before they were read, or go on with the rest."
    )
    kafka_options: KafkaOptions = Field({}, description="Options for the Kafka client; their values are never shown.")
    fast_alerts_topic: Annotated[Topic | None, BeforeValidator(lambda given: given or None)] = Field(
        None,
        pattern=_TOPIC,
        description="Kafka topic, at bootstrap_servers, that 'realtime' writes to and 'ingest' reads; empty for none.",
    )
    realtime_batch: Duration = Field(
        timedelta(minutes=5),
        ge=timedelta(seconds=5),
        description="Time between the commits of 'realtime', each of which stops it for about a second.",
    )
    kafka_secret: str | None = Field(
        None,
        pattern=_SECRET,
        description="In a workspace: the secret, as SCOPE/KEY, that holds kafka_options as a JSON object.",
    )

    trigger: Literal["available-now", "continuous"] = Field(
        "available-now", description="Process what is there and stop, or keep running."
    )
    interval: Duration = Field(
        timedelta(seconds=1), gt=timedelta(0), description="Time between micro-batches of a continuous stream."
    )
    max_files_per_trigger: int = Field(
        1000, ge=1, le=_MOST_INT, description="Maximum number of files in a micro-batch."
    )
    max_bytes_per_trigger: Size | None = Field(
        None, description="Approximate size of a micro-batch, such as 512m or 2g."
    )
    landing_timezone: str = Field("UTC", description="Time zone of the JVM of the Flink that wrote the files.")
    file_events: Literal["off", "notifications", "managed"] = Field(
        "off", description="How Auto Loader finds new files: by listing, by a queue, or by managed file events."
    )

    columns: Columns = Field(
        {}, description='Further fields of the payload, by column, as JSON: {"kind": "string", …}.'
    )

    ordering: Literal["arrival", "event_time"] = Field(
        "arrival", description="Order in which the detector takes rows: as they arrive, or in event time."
    )
    max_out_of_orderness: Duration = Field(
        timedelta(seconds=10),
        ge=timedelta(0),
        description="In event_time order: how far behind the newest event time a row may come before it is late.",
    )
    small_below: float = Field(1.0, gt=0, description="A transaction below this amount is small.")
    large_above: float = Field(500.0, gt=0, description="A transaction above this amount is large.")
    within: Duration = Field(
        timedelta(seconds=60), gt=timedelta(0), description="Longest time from the small transaction to the large one."
    )
    rules: tuple[Rule, ...] = Field(
        (), description="Several rules at once; those of kind small_then_large replace the three settings above."
    )
    buckets: int = Field(16, ge=1, le=4096, description="Hash buckets of accounts that hold the state.")

    timestamp_floor: Day = Field(
        "1970-01-01",
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        description="A transaction before this day (UTC) is quarantined.",
    )
    max_ahead: Duration = Field(
        timedelta(days=1), ge=timedelta(0), description="A transaction further ahead of the clock is quarantined."
    )
    warn: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_warnings)] = Field(
        (), description=f"Rules that only warn, with commas between: any of {', '.join(MAY_WARN)}."
    )

    delivery_folder: str | None = Field(
        None, description="Folder for delivered alerts as JSON lines; in a workspace a folder in a volume."
    )
    delivery_topic: Topic | None = Field(
        None, pattern=_TOPIC, description="Kafka topic for delivered alerts, at bootstrap_servers."
    )
    delivery_secret: str | None = Field(
        None,
        pattern=_SECRET,
        description="In a workspace: the secret, as SCOPE/KEY, that holds webhook_url, webhook_secret or jdbc_url as a "
        "JSON object.",
    )
    webhook_url: SecretStr | None = Field(None, description="Address that alerts are posted to; never shown.")
    webhook_secret: SecretStr | None = Field(
        None, description="Key of the webhook's signature: whsec_ and 24 to 64 random bytes in base64; never shown."
    )
    webhook_timeout: Duration = Field(
        timedelta(seconds=10), gt=timedelta(0), description="Longest wait for a connection, and for an answer."
    )
    webhook_allow_http: bool = Field(False, description="Allow a webhook without TLS on another machine.")
    jdbc_url: SecretStr | None = Field(
        None, description="Database for delivered alerts, as an address of SQLAlchemy; never shown."
    )
    jdbc_table: str = Field(
        "fraud_alerts", pattern=r"^\w+(\.\w+)?$", description="Its table, perhaps with a schema before it."
    )
    suppress_within: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="Deliver no alert nearer than this, in event time, to a delivered one of its account (0: deliver "
        "all).",
    )
    max_alerts_per_minute: int = Field(
        0, ge=0, description="How many alerts of a minute, by detection, are delivered to a destination (0: no limit)."
    )

    model_name: str = Field(
        "fraudlake",
        pattern=r"^[\w.-]+$",
        description="Name of the registered model (default in a workspace: CATALOG.SCHEMA.fraud_model).",
    )
    threshold: float = Field(0.5, gt=0, lt=1, description="Probability from which a transaction is predicted fraud.")
    holdout: float = Field(0.3, gt=0, lt=1, description="Latest share of the history, by which the model is evaluated.")
    labels: Literal["auto", "flink", "verdicts"] = Field(
        "auto", description="What a model learns: Flink's label, analysts' verdicts, or those where there are enough."
    )
    algorithm: Literal["trees", "logistic"] = Field(
        "trees", description="Gradient-boosted trees, or the logistic regression that is otherwise their baseline."
    )
    max_training_rows: int = Field(
        5_000_000,
        ge=1000,
        description="Largest history that a model learns whole; of a larger one it learns all fraud and a sample.",
    )
    promotion_margin: float = Field(
        0.005, ge=0, lt=1, description="By how much a challenger's area under PR must be higher than the champion's."
    )
    auto_promote: bool = Field(True, description="Let 'train' make a better model the champion by itself.")
    max_drift: float = Field(0.25, gt=0, description="Population stability index above which 'status' fails.")
    min_true_prediction_rate: float = Field(
        0.95, ge=0, le=1, description="True prediction rate of the latest day below which 'status' fails."
    )

    clustering: Literal["zorder", "liquid"] = Field(
        "zorder", description="How new tables bring an account's rows together: ZORDER in date partitions, or liquid."
    )
    target_file_size: Size = Field(
        "512k", description="Approximate size of the files that optimize writes, such as 512k or 128m."
    )
    retention: Duration = Field(
        timedelta(days=7), ge=timedelta(0), description="How long optimize keeps files that tables no longer use."
    )

    row_retention: RowRetention = Field(
        {}, description='How long tables keep rows, in event time, as JSON: {"silver_transactions": "400d", …}.'
    )

    driver_memory: str = Field("4g", pattern=r"^[1-9][0-9]{0,6}[mg]$", description="Memory of the local Spark process.")
    java_options: JavaOptions = Field("", description="Further options for the Java of the local Spark process.")
    spark_options: SparkOptions = Field(
        {}, description='Further configuration of the local Spark process, as JSON: {"spark.…": "…"}.'
    )
    shuffle_partitions: int | None = Field(
        None,
        ge=1,
        le=_MOST_INT,
        description="Partitions of an exchange, and of new state (default: one a core, in a workspace one a bucket).",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags come before the environment, the environment before the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def landing_path(self) -> str:
        """Folder in which Flink's files land."""
        return self.landing or (self._volume("landing") if self.catalog else str(self.lake / "landing"))

    @property
    def checkpoints_path(self) -> Path:
        """Folder of the streams' checkpoints."""
        if self.checkpoints:
            return Path(self.checkpoints)
        return Path(self._volume("checkpoints")) if self.catalog else self.lake.absolute() / "checkpoints"

    @property
    def given(self) -> dict[str, str]:
        """What was given of :data:`DEFINITION`, by name: the flag, the variable of the environment or the file."""
        return {name: self._origins.get(name, name) for name in DEFINITION if name in self.model_fields_set}

    @property
    def definition(self) -> dict[str, Any]:
        """The settings of :data:`DEFINITION`, as JSON has them."""
        return {
            name: DEFINITION_TYPES[name].dump_python(getattr(self, name), mode="json", by_alias=True)
            for name in DEFINITION
        }

    def defined(self, values: Mapping[str, object]) -> Settings:
        """Return these settings with a lake's values of :data:`DEFINITION`, of which none then counts as given."""
        return Settings.model_construct(self.model_fields_set.difference(DEFINITION), **{**dict(self), **values})

    def _volume(self, name: str) -> str:
        return f"/Volumes/{self.catalog}/{self.schema_name}/{name}"

    @property
    def target_file_bytes(self) -> int:
        """Size of the files that optimize makes, in bytes."""
        return size_in_bytes(self.target_file_size)

    def first_day(self, *names: str) -> date | None:
        """Return the first day (UTC) whose rows all of some tables keep; None where ``row_retention`` names none."""
        limits = [self.row_retention[name] for name in names if name in self.row_retention]
        return (datetime.now(UTC) - min(limits)).date() if limits else None

    @property
    def active_rules(self) -> tuple[SmallThenLargeRule, ...]:
        """The small-then-large rules: those of ``rules``, or the one that the three single settings make."""
        return tuple(rule for rule in self.rules if isinstance(rule, SmallThenLargeRule)) or (
            SmallThenLargeRule(
                name="small_then_large",
                small_below=self.small_below,
                large_above=self.large_above,
                within=self.within,
            ),
        )

    @property
    def known_rules(self) -> tuple[Rule, ...]:
        """The rules of all kinds, by whose names commands know them."""
        others = (rule for rule in self.rules if not isinstance(rule, SmallThenLargeRule))
        return (*self.active_rules, *others)

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_lake(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Require a folder, or a catalog and a schema, which have their own defaults of model name and experiment."""
        given = dict(given)
        # The names of the schema in flags, the environment and the file, in the order of precedence.
        schemas = [given.pop(name, None) for name in ("schema_name", "fraudlake_schema", "schema")]
        schema = next((name for name in schemas if name is not None), None)
        if schema is not None:
            given["schema_name"] = schema
        catalog = given.get("catalog")
        if (catalog is None) != (schema is None):
            raise ValueError("--catalog and --schema name a lake in a workspace together: give both, or --lake DIR")
        if catalog is not None and "lake" in given:
            raise ValueError("a lake is either a folder or in a workspace: give --lake, or --catalog and --schema")
        if catalog is not None:
            given.setdefault("model_name", f"{catalog}.{schema}.fraud_model")
            given.setdefault("experiment", f"/Shared/{given['model_name']}")
        return given

    @field_validator("landing_timezone")
    @classmethod
    def _timezone_is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError("must be a time zone such as 'UTC' or 'America/New_York'") from None
        return name

    @model_validator(mode="after")
    def _kafka_is_complete(self) -> Settings:
        if self.source == "kafka" and self.bootstrap_servers is None:
            raise ValueError("--source kafka needs --bootstrap-servers HOST:PORT")
        if self.starting_offsets not in ("earliest", "latest") and [*json.loads(self.starting_offsets)] != [self.topic]:
            raise ValueError(f"--starting-offsets must name one topic, '{self.topic}', which --topic reads")
        if self.fast_alerts_topic is not None and self.bootstrap_servers is None:
            raise ValueError("--fast-alerts-topic needs --bootstrap-servers HOST:PORT")
        if self.fast_alerts_topic == self.topic:
            raise ValueError(f"--fast-alerts-topic '{self.topic}' is the topic of transactions: name another")
        return self

    @model_validator(mode="after")
    def _webhook_is_safe(self) -> Settings:
        if self.webhook_url is not None:
            require_safe_url(self.webhook_url, self.webhook_allow_http)
        return self

    @model_validator(mode="after")
    def _rules_are_consistent(self) -> Settings:
        names = [rule.name for rule in self.known_rules]
        if len(set(names)) < len(names):
            raise ValueError(f"rules must have different names, not {names}")
        return self


def _type_of(name: str) -> TypeAdapter[Any]:
    kind: Any = Annotated[Settings.model_fields[name].annotation, Settings.model_fields[name]]
    return TypeAdapter(kind)


DEFINITION_TYPES = {name: _type_of(name) for name in DEFINITION}
"""What reads and writes each of :data:`DEFINITION` as JSON."""


def load(file: Path | None = None, **flags: Any) -> Settings:
    """Make the settings from flags (those that are not None), environment, file and defaults, in this order.

    Raises:
        UsageError: a value is out of range, a name is unknown, or the file cannot be read.
    """
    if file is not None:
        try:
            is_there = file.is_file()
        except OSError as error:
            raise UsageError(f"--config {file}: {error.strerror}") from None
        if not is_there:
            raise UsageError(f"--config {file}: no such file")
    _reject_unknown_environment()
    path = file or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    # A variable of a bundle that has no value is an empty flag.
    given = {
        name: value for name, value in flags.items() if value is not None and not (name in DEFINITION and value == "")
    }
    try:
        values = FromFile(**given)
    except ValidationError as error:
        raise UsageError(" ".join(_one_line(error, set(given), path).splitlines())) from None
    except SettingsError as error:  # a value in the environment is not JSON
        match = re.search(r'field "(\w+)"', str(error))
        where = f"{ENV_PREFIX}{match[1]}".upper() if match else str(path)
        raise UsageError(f"{where}: must be JSON") from None
    except RecursionError:
        raise UsageError(f"{path or 'the environment'}: brackets are nested too deeply") from None
    except (ValueError, OSError) as error:  # tomllib, unreadable file
        raise UsageError(f"{path}: {error}") from None
    made = Settings.model_construct(values.model_fields_set, **dict(values))
    made._origins = {name: _origin(name, set(given), path) for name in DEFINITION}
    return made


def _public_name(name: str) -> str:
    """Return a setting's name as users write it: ``schema`` for ``schema_name``."""
    return "schema" if name in ("schema_name", "fraudlake_schema") else name


def is_utf8(text: str) -> bool:
    """Tell whether a text that the system handed over is UTF-8; Python keeps other bytes as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_unknown_environment() -> None:
    known = {f"{ENV_PREFIX}{_public_name(name)}".upper() for name in Settings.model_fields}
    for name, value in os.environ.items():
        if name.startswith(ENV_PREFIX) and name not in known:
            raise UsageError(f"environment variable {name}: there is no such setting")
        if name.startswith(ENV_PREFIX) and not is_utf8(value):
            raise UsageError(f"{name}: must be UTF-8")


def _origin(name: str, flags: set[str], file: Path | None) -> str:
    """Return where a setting was given, by its name as users write it: a flag, the environment or a file."""
    if name in flags or (name == "schema" and "schema_name" in flags):
        return f"--{name.replace('_', '-')}"
    variable = f"{ENV_PREFIX}{name}".upper()
    return variable if os.environ.get(variable) else str(file)


def _one_line(error: ValidationError, flags: set[str], file: Path | None) -> str:
    """Describe the first invalid setting: its name, its value, where it was set, and what is allowed."""
    first = error.errors()[0]
    location = [str(part) for part in first["loc"]]
    if location[:1] == ["rules"]:  # a rule's kind stands behind its number
        del location[2:3]
    reason = first["msg"].removeprefix("Value error, ")
    if not location:
        return reason
    location[0] = _public_name(location[0])
    name, origin = ".".join(location), _origin(location[0], flags, file)
    where = name if origin == str(file) else ".".join(location[1:])
    if first["type"] == "extra_forbidden":
        return f"{origin}: there is no setting '{name}'"
    where = f"{origin}: {where}" if where else origin
    value = first["input"]
    is_secret = location[0] in SECRETS
    shown = f" = {value!r}" if isinstance(value, str | int | float) and not is_secret else ""
    return f"{where}{shown}: {reason[0].lower()}{reason[1:]}"
