from __future__ import annotations

import json
import math
import re
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fraudlake import entity, settings
from fraudlake.errors import UsageError
from fraudlake.text import text_file, toml_file


def test_flags_come_before_the_environment_before_the_file_before_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('buckets = 2\nmax_amount = 300\ncase_gap = "2 minutes"\n')
    monkeypatch.setenv("FRAUDLAKE_BUCKETS", "3")
    monkeypatch.setenv("FRAUDLAKE_MAX_AMOUNT", "400")
    made = settings.load(file, buckets="4")
    assert (made.buckets, made.max_amount, made.case_gap) == (4, 400, timedelta(minutes=2))
    assert made.ordering == "arrival"


def test_a_file_in_the_working_folder_is_read(tmp_path: Path) -> None:
    Path("fraudlake.toml").write_text("buckets = 7\n")
    assert settings.load().buckets == 7


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 seconds", 10),
        ("1 second", 1),
        ("500 ms", 0.5),
        ("90", 90),
        ("2 hours", 7200),
        ("1.5 minutes", 90),
        ("2d", 172800),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert settings.load(case_gap=text).case_gap == timedelta(seconds=seconds)


def test_a_new_lake_has_the_tutorials_rule() -> None:
    [rule] = settings.load().rules
    assert rule.model_dump(exclude={"entity"}) == {
        "kind": "small_then_large",
        "name": "small_then_large",
        "small_below": 1.0,
        "large_above": 500.0,
        "within": "60 s",
    }


def test_rules_of_the_file_replace_the_single_one(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[[rules]]\nname = "a"\nsmall_below = 1\nlarge_above = 500\nwithin = "60 s"\n'
        '[[rules]]\nname = "b"\nsmall_below = 5\nlarge_above = 50\nwithin = "10 s"\n'
    )
    assert [rule.name for rule in settings.load(file).rules] == ["a", "b"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"buckets": "0"}, "--buckets = '0': input should be greater than or equal to 1"),
        ({"case_gap": "soon"}, "--case-gap = 'soon': must be a duration such as '10 seconds', '500 ms' or '2 hours'"),
        ({"trigger": "often"}, "--trigger = 'often': input should be 'available-now' or 'continuous'"),
        ({"timestamp_floor": "2026-13-45"}, "--timestamp-floor = '2026-13-45': must be a day such as '2026-03-07'"),
        ({"file_events": "notifications"}, "--file-events = 'notifications': input should be 'off' or 'managed'"),
        ({"topic": ".."}, "--topic = '..': must be a name that Kafka allows, not '.' or '..'"),
        ({"fast_alerts_topic": "fast"}, "--fast-alerts-topic needs --bootstrap-servers HOST:PORT"),
        (
            {"fast_alerts_topic": "fraud-events", "bootstrap_servers": "a:9092"},
            "--fast-alerts-topic 'fraud-events' is the topic of transactions: name another",
        ),
        ({"max_amount": "inf"}, "--max-amount = 'inf': input should be a finite number"),
        ({"max_amount": "nan"}, "--max-amount = 'nan': input should be a finite number"),
        ({"case_gap": "9" * 30 + " days"}, f"--case-gap = '{'9' * 30} days': must not be longer than 36500 days"),
        (
            {"target_file_size": "9999999t"},
            "--target-file-size = '9999999t': must be a size such as '512k', '128m' or '2g'",
        ),
        ({"cluster_growth": "-0.1"}, "--cluster-growth = '-0.1': input should be greater than or equal to 0"),
        ({"columns": "[" * 100_000}, f"--columns = '{'[' * 100_000}': must be JSON"),
        ({"small_below": "600"}, "--small-below: there is no setting 'small_below'"),
    ],
)
def test_a_wrong_flag_is_one_line_with_its_value_and_what_is_allowed(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        settings.load(**flags)
    assert str(error.value) == message


def test_a_wrong_value_in_the_environment_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUDLAKE_MAX_FILES_PER_TRIGGER", "many")
    with pytest.raises(UsageError, match=r"^FRAUDLAKE_MAX_FILES_PER_TRIGGER = 'many': input should be a valid integer"):
        settings.load()


def test_an_unknown_variable_of_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUDLAKE_BUKKETS", "2")
    with pytest.raises(UsageError, match="variable FRAUDLAKE_BUKKETS: there is no such setting"):
        settings.load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bukkets = 3", "there is no setting 'bukkets': did you mean 'buckets'?"),
        ('[columns]\nshop = { typ = "string" }', "there is no setting 'columns.shop.typ': did you mean 'type'?"),
        ("buckets = 'x'", "buckets = 'x': input should be a valid integer"),
        ("buckets = ", "Invalid value"),
        ('[[rules]]\nname = "A b"\nsmall_below = 1\nlarge_above = 2\nwithin = "1 s"', "rules.0.name = 'A b'"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text + "\n")
    with pytest.raises(UsageError) as error:
        settings.load(file)
    assert str(file) in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_are_declared_by_their_type_or_with_field_and_nullability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[columns]\nkind = "string"\nmerchant_id = { from = "merchantId", type = "long", nullable = false }\n'
    )
    declared = settings.load(file).columns
    assert [(name, c.field, c.type, c.nullable) for name, c in declared.items()] == [
        ("kind", "kind", "string", True),
        ("merchant_id", "merchantId", "bigint", False),
    ]
    monkeypatch.setenv("FRAUDLAKE_COLUMNS", '{"paid_at": "timestamp"}')
    assert list(settings.load(file).columns) == ["paid_at"]
    assert settings.load(file, columns="{}").columns == {}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("{", "--columns = '{': must be JSON"),
        ("[1]", 'must be a table of columns, such as kind = "string"'),
        ('{"_x": "string"}', "'_x' must be of letters, digits and underscores, and begin with a letter"),
        (
            '{"Amount": "double"}',
            "'Amount' is a column of the lake's own, which the field 'amount' of the payload fills",
        ),
        ('{"account_id": {"from": "card", "type": "string"}}', "which the field 'accountId' of the payload fills"),
        ('{"reasons": "string"}', "'reasons' is a column of the lake's own"),
        ('{"a": "string", "A": "string"}', "'A' is declared twice, as names in other case are the same: rename one"),
        ('{"a": "varchar"}', "--columns: a.type = 'varchar': input should be 'string', 'bigint', 'double', "),
        ('{"a": {"from": "b"}}', "--columns: a.type: field required"),
        ('{"a": {"type": "string", "size": 9}}', "--columns: there is no setting 'columns.a.size'"),
        ('{"a": 3}', "'a' must be a type, such as 'string', or a table of 'from', 'type' and 'nullable'"),
        (
            '{"a": {"type": "string", "from": "accountID"}}',
            "'a' is taken from 'accountID', which is a field of Flink's",
        ),
        (
            '{"a": {"type": "string", "from": "q"}, "b": {"type": "string", "from": "Q"}}',
            "'b' is taken from 'Q', which is taken for 'a' already: take another field",
        ),
    ],
)
def test_a_wrong_column_is_one_line_with_its_name(columns: str, message: str) -> None:
    with pytest.raises(UsageError, match="--columns") as refused:
        settings.load(columns=columns)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_entities_are_declared_by_a_column_or_several(tmp_path: Path) -> None:
    file = tmp_path / "fraudlake.toml"
    file.write_text('[entities]\nterminal = "terminal_id"\naccount_at_shop = ["account_id", "merchant_id"]\n')
    given = settings.load(file)
    assert given.entities == {"terminal": ("terminal_id",), "account_at_shop": ("account_id", "merchant_id")}
    assert (given.entity_columns("terminal"), given.entity_columns("account")) == (("terminal_id",), ("account_id",))
    # The numbers are in checkpoints: they never change.
    assert [entity.number(name) for name in ("account", "terminal", "device")] == [0, 3458, 2451]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "--entities = '{': must be JSON"),
        ("[1]", 'must be a table of entities, such as terminal = "terminal_id"'),
        ('{"Shop": "merchant_id"}', "'Shop' must be of lower-case letters, digits and underscores, and begin with a"),
        ('{"account": "card"}', "'account' is always declared: leave it out"),
        ('{"shop": 3}', "'shop' must be a column, or a list of columns"),
        ('{"shop": []}', "'shop' must be a column, or a list of columns"),
        ('{"shop": ["a", "a"]}', "'shop' names a column twice"),
        ('{"payer": "account_id"}', "'payer' has the same key as 'account': use that one"),
        ('{"x": ["a", "b"], "y": ["b", "a"]}', "'y' has the same key as 'x': use that one"),
        ('{"e92": "a", "e118": "b"}', "'e118' and 'e92' have the same checksum: rename one"),
    ],
)
def test_a_wrong_entity_is_one_line_with_its_name(given: str, message: str) -> None:
    with pytest.raises(UsageError, match="--entities") as refused:
        settings.load(entities=given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rules_that_warn_are_listed_with_commas_or_as_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('warn = ["amount_is_positive", "timestamp_is_not_in_future"]\n')
    both = ("amount_is_positive", "timestamp_is_not_in_future")
    assert settings.load(file).warn == both
    assert settings.load(warn="amount_is_positive, timestamp_is_not_in_future").warn == both
    monkeypatch.setenv("FRAUDLAKE_WARN", "amount_is_positive")
    assert settings.load().warn == ("amount_is_positive",)


@pytest.mark.parametrize("name", ["amount_is_large", "amount_is_known"])
def test_a_rule_that_must_reject_or_does_not_exist_cannot_warn(name: str) -> None:
    with pytest.raises(UsageError, match=f"--warn.*'{name}' cannot be a warning: only amount_is_positive, "):
        settings.load(warn=name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        settings.load(tmp_path / "none.toml")


def test_kafka_needs_to_be_told_where_it_is() -> None:
    with pytest.raises(UsageError, match="--source kafka needs --bootstrap-servers HOST:PORT"):
        settings.load(source="kafka")
    assert settings.load(source="kafka", bootstrap_servers="a:9092,b:9092").fail_on_data_loss


@pytest.mark.parametrize(
    "offsets", ["first", "[1]", "{}", '{"fraud-events": {"0": -3}}', '{"fraud-events": {"0": true}}']
)
def test_starting_offsets_that_are_none_are_refused(offsets: str) -> None:
    with pytest.raises(UsageError, match="--starting-offsets"):
        settings.load(starting_offsets=offsets)


def test_starting_offsets_belong_to_the_topic() -> None:
    assert settings.load(starting_offsets='{"t": {"0": 5}}', topic="t").topic == "t"
    with pytest.raises(UsageError, match="must name one topic, 'fraud-events', which --topic reads"):
        settings.load(starting_offsets='{"t": {"0": 5}}')


def test_options_of_the_kafka_client_have_one_name_each_way_of_writing(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[kafka_options]\nsecurity.protocol = "SSL"\n"kafka.ssl.key.password" = "hush"\nmax.poll.records = 5\n'
    )
    options = settings.load(file).kafka_options
    assert {name: value.get_secret_value() for name, value in options.items()} == {
        "security.protocol": "SSL",
        "ssl.key.password": "hush",
        "max.poll.records": "5",
    }


def test_options_of_the_kafka_client_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAUDLAKE_KAFKA_OPTIONS", '{"sasl.jaas.config": "hush"}')
    made = settings.load()
    assert "hush" not in f"{made!r} {made} {made.model_dump()} {made.model_dump_json()}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ('{"sasl.jaas.config": "hush"', "must be JSON"),
        ('"hush"', "must be a table"),
        ('{"sasl.jaas.config": ["hush"]}', "'sasl.jaas.config' must be a text, a number or a boolean"),
        ('{"a": "hush", "kafka.a": "hush"}', "'a' is given twice, with and without 'kafka.' before it"),
        ('{"kafka.bootstrap.servers": "hush"}', "'bootstrap.servers' has its own setting"),
        ('{"auto.offset.reset": "hush"}', "'auto.offset.reset' belongs to Spark and cannot be set"),
    ],
)
def test_a_wrong_option_of_the_kafka_client_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch, options: str, reason: str
) -> None:
    monkeypatch.setenv("FRAUDLAKE_KAFKA_OPTIONS", options)
    with pytest.raises(UsageError) as refused:
        settings.load()
    assert str(refused.value).startswith("FRAUDLAKE_KAFKA_OPTIONS: ")
    assert reason in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_time_zone_that_does_not_exist_is_refused() -> None:
    assert settings.load(landing_timezone="America/New_York").landing_timezone == "America/New_York"
    with pytest.raises(UsageError, match="--landing-timezone = 'Mars/Olympus': must be a time zone such as 'UTC'"):
        settings.load(landing_timezone="Mars/Olympus")


def test_a_bound_of_bytes_is_a_number_with_a_unit() -> None:
    with pytest.raises(UsageError, match="--max-bytes-per-trigger = 'much'"):
        settings.load(max_bytes_per_trigger="much")


def test_a_lake_in_a_workspace_is_named_by_catalog_and_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.toml"
    file.write_text('catalog = "main"\nschema = "of_the_file"\n')
    made = settings.load(file)
    assert (made.catalog, made.schema_name) == ("main", "of_the_file")
    assert (made.landing_path, made.checkpoints_path) == (
        "/Volumes/main/of_the_file/landing",
        Path("/Volumes/main/of_the_file/checkpoints"),
    )
    assert (made.model_name, made.experiment) == (
        "main.of_the_file.fraud_model",
        "/Shared/main.of_the_file.fraud_model",
    )
    monkeypatch.setenv("FRAUDLAKE_SCHEMA", "of_the_environment")
    assert settings.load(file).schema_name == "of_the_environment"
    assert settings.load(file, schema_name="of_the_flag").schema_name == "of_the_flag"
    assert settings.load(file, landing="/Volumes/a/b/c").landing_path == "/Volumes/a/b/c"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"catalog": "main"}, "--catalog and --schema name a lake in a workspace together: give both"),
        ({"schema_name": "fraud"}, "--catalog and --schema name a lake in a workspace together: give both"),
        ({"catalog": "main", "schema_name": "f", "lake": "l"}, "a lake is either a folder or in a workspace"),
        ({"catalog": "main", "schema_name": "a b"}, "--schema = 'a b': string should match"),
        ({"kafka_secret": "kafka"}, "--kafka-secret = 'kafka': string should match"),
    ],
)
def test_half_a_workspace_is_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        settings.load(**flags)


@pytest.mark.parametrize(
    "url", ["https://alerts.example.com/hush", "http://localhost:8080/hush", "http://127.0.0.1/", "http://[::1]:80/"]
)
def test_a_webhook_is_behind_tls_or_on_this_machine(url: str) -> None:
    made = settings.load(webhook_url=url)
    assert made.webhook_url is not None and made.webhook_url.get_secret_value() == url
    assert "hush" not in repr(made)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://alerts.example.com/hush", "webhook_url must be https, unless webhook_allow_http is true"),
        ("http://127.0.0.1.example.com/hush", "webhook_url must be https"),
        ("ftp://alerts.example.com/hush", "webhook_url must be an address such as https://"),
        ("alerts.example.com/hush", "webhook_url must be an address"),
        ("https://alerts.example.com:hush", "webhook_url must be an address"),
    ],
)
def test_a_webhook_that_anybody_could_read_is_refused_and_not_shown(url: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings.load(webhook_url=url)
    assert str(refused.value).startswith(reason)
    assert "hush" not in str(refused.value)


def test_a_webhook_without_tls_may_be_allowed() -> None:
    assert settings.load(webhook_url="http://alerts.example.com", webhook_allow_http="true").webhook_allow_http


@pytest.mark.parametrize("name", settings.SECRETS)
def test_a_secret_of_the_wrong_type_is_not_shown(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f"{name} = 4711\n")
    with pytest.raises(UsageError) as refused:
        settings.load(tmp_path / "s.toml")
    assert name in str(refused.value)
    assert "4711" not in str(refused.value)


texts = (
    st.text(max_size=20)
    | st.floats().map(str)
    | st.integers().map(str)
    | st.builds("{} {}".format, st.integers(0) | st.floats(0), st.sampled_from(["ms", "seconds", "hours", "d", "g"]))
    | st.recursive(st.text(max_size=3) | st.integers(), lambda part: st.dictionaries(st.text(max_size=3), part)).map(
        json.dumps
    )
    | st.dates().map(str)
)


@pytest.mark.slow
@given(st.sampled_from(sorted(settings.Settings.model_fields)), texts)
@example("case_gap", "9" * 400 + " d")
@example("interval", "99999999999999 days")
@example("starting_offsets", '{"t": ' * 100_000)
@hypothesis.settings(max_examples=200)
def test_any_text_of_any_setting_is_settings_or_one_line(name: str, text: str) -> None:
    try:
        made = settings.load(**{name: text})
    except UsageError as refused:
        assert len(str(refused).splitlines()) == 1
    else:
        assert made.target_file_bytes < 2**63
        assert math.isfinite(made.max_amount)
        assert datetime(2026, 3, 7) - made.retention < datetime(2026, 3, 7) + made.max_ahead


@pytest.mark.slow
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | st.just(b"columns = " + b"[" * 100_000))
def test_any_file_is_settings_or_one_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "s.toml"
        file.write_bytes(content)
        try:
            settings.load(file)
        except UsageError as refused:
            assert len(str(refused).splitlines()) == 1


def test_options_of_spark_are_json_or_a_table_and_texts_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[spark_options]\n"spark.sql.adaptive.enabled" = false\nspark.sql.files.maxPartitionBytes = 1024\n')
    expected = {"spark.sql.adaptive.enabled": "false", "spark.sql.files.maxPartitionBytes": "1024"}
    assert settings.load(file).spark_options == expected
    monkeypatch.setenv("FRAUDLAKE_SPARK_OPTIONS", json.dumps(expected))
    assert settings.load().spark_options == expected


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("SPARK_OPTIONS", "spark.x=1", "must be JSON such as"),
        ("SPARK_OPTIONS", '{"adaptive": "false"}', "'adaptive' is not an option of Spark"),
        ("SPARK_OPTIONS", '{"spark.x": [1]}', "'spark.x' must be a text, a number or a boolean"),
        ("JAVA_OPTIONS", "-Dx=1 -Xmx8g", "-Xmx has its own setting: driver_memory"),
        ("JAVA_OPTIONS", "-Dx='a b", "has an unmatched quote"),
    ],
)
def test_wrong_options_of_spark_and_java_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(f"FRAUDLAKE_{name}", value)
    with pytest.raises(UsageError, match=f"FRAUDLAKE_{name}.*{re.escape(reason)}"):
        settings.load()


LINES = '# größer\r\ntopic = "zahlungen"\r\n\tbuckets = 8\r\n'
RULES = '[[rules]]\r\n\tname = "größer"\r\n\tkind = "threshold"\r\n\tabove = 5\r\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom", "utf-16-be-bom"])
def test_files_of_editors_on_windows_are_read(tmp_path: Path, encoding: str) -> None:
    def saved(name: str, text: str) -> Path:
        marks = {"utf-16-le-bom": "utf-16-le", "utf-16-be-bom": "utf-16-be"}
        file = tmp_path / name
        file.write_bytes(f"\ufeff{text}".encode(marks[encoding]) if encoding in marks else text.encode(encoding))
        return file

    assert settings.load(saved("e [1].toml", LINES)).buckets == 8
    assert toml_file.read(saved("rules *.toml", RULES))["rules"][0]["name"] == "größer"
    assert text_file.text(saved("query.sql", "a\r\nü")) == "a\nü"


@pytest.mark.parametrize("name", ["config", "rules", "features"])
def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "given.toml"
    file.write_bytes('topic = "a"\n# größer\n'.encode("latin-1"))
    with pytest.raises(UsageError, match=r"given\.toml: line 2 is not UTF-8: save the file as UTF-8$"):
        settings.load(file) if name == "config" else toml_file.entries(file, name)
