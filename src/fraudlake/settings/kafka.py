"""Kafka: which topics are read and written, at which brokers, and how their client connects."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, model_validator

from fraudlake.times.durations import Duration
from fraudlake.values import MOST_INT, MOST_LONG, SECRET, TOPIC, Topic, flattened

_SET_BY_SPARK = {"auto.offset.reset", "enable.auto.commit", "interceptor.classes"}
_SET_BY_SPARK |= {f"{part}.{way}serializer" for part in ("key", "value") for way in ("", "de")}


def _kafka_options(value: object) -> object:
    """Rename options of the Kafka client to Kafka's own names; values, which may be passwords, appear in no message.

    ``kafka.security.protocol``, Spark's name, and ``security.protocol`` are the same option. A TOML file may quote
    such names, or write them as nested tables.
    """
    if not isinstance(value, dict):
        raise ValueError("must be a table of options for the Kafka client")
    options: dict[str, object] = {}
    for given_name, option in flattened(value):
        name = given_name.removeprefix("kafka.")
        if name in options:
            raise ValueError(f"'{name}' is given twice, with and without 'kafka.' before it")
        if name == "bootstrap.servers":
            raise ValueError("'bootstrap.servers' has its own setting: bootstrap_servers")
        if name in _SET_BY_SPARK:
            raise ValueError(f"'{name}' belongs to Spark and cannot be set")
        if not isinstance(option, str | int | float | SecretStr):
            raise ValueError(f"'{name}' must be a text, a number or a boolean")
        is_secret = isinstance(option, SecretStr)
        text = str(option)
        options[name] = option if is_secret else text.lower() if isinstance(option, bool) else text
    return options


KafkaOptions = Annotated[dict[str, SecretStr], BeforeValidator(_kafka_options)]


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
        type(offset) is int and 0 <= number <= MOST_INT and -2 <= offset <= MOST_LONG for number, offset in offsets
    )
    if not offsets or not all(in_range):
        raise ValueError(message)
    return value


class Kafka(BaseModel):
    """Where transactions come from, and how Kafka is read if they come from there."""

    source: Literal["files", "kafka"] = Field("files", description="Where transactions come from: files or kafka.")
    bootstrap_servers: str | None = Field(
        None, pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$", description="Kafka brokers: HOST:PORT, several with commas."
    )
    topic: Topic = Field("fraud-events", pattern=TOPIC, description="Kafka topic to read.")
    starting_offsets: Annotated[str, AfterValidator(_starting_offsets)] = Field(
        "earliest", description="Where a new Kafka stream begins: earliest, latest, or offsets as JSON."
    )
    max_offsets_per_trigger: int = Field(
        500_000, ge=1, le=MOST_LONG, description="Maximum number of messages in a micro-batch."
    )
    fail_on_data_loss: bool = Field(
        True, description="Stop if Kafka removed messages before they were read, or continue with the rest."
    )
    kafka_options: KafkaOptions = Field({}, description="Options for the Kafka client; their values are never shown.")
    fast_alerts_topic: Annotated[Topic | None, BeforeValidator(lambda topic: topic or None)] = Field(
        None,
        pattern=TOPIC,
        description="Kafka topic, at bootstrap_servers, that 'realtime' writes to and 'ingest' reads; empty for none.",
    )
    realtime_batch: Duration = Field(
        timedelta(minutes=5),
        ge=timedelta(seconds=5),
        description="Time between the commits of 'realtime', each of which stops it for about a second.",
    )
    kafka_secret: str | None = Field(
        None,
        pattern=SECRET,
        description="In a workspace: the secret, as SCOPE/KEY, that holds kafka_options as a JSON object.",
    )

    @model_validator(mode="after")
    def _kafka_is_complete(self) -> Self:
        if self.source == "kafka" and self.bootstrap_servers is None:
            raise ValueError("--source kafka needs --bootstrap-servers HOST:PORT")
        if self.starting_offsets not in ("earliest", "latest") and [*json.loads(self.starting_offsets)] != [self.topic]:
            raise ValueError(f"--starting-offsets must name one topic, '{self.topic}', which --topic reads")
        if self.fast_alerts_topic is not None and self.bootstrap_servers is None:
            raise ValueError("--fast-alerts-topic needs --bootstrap-servers HOST:PORT")
        if self.fast_alerts_topic == self.topic:
            raise ValueError(f"--fast-alerts-topic '{self.topic}' is the topic of transactions: name another")
        return self
