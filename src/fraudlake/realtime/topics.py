"""Topics of the fast lane: what it asks Kafka before it starts, with the client and the options of Spark's source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.sources import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.settings import Settings

_SAMPLE = 200
"""How many messages are looked at to see what their key is."""
_TIMEOUTS = {"default.api.timeout.ms": "10000", "request.timeout.ms": "8000"}


def require(spark: SparkSession, settings: Settings, slots: int, state_partitions: int) -> int:
    """Check that both topics are there, that there are task slots for all partitions, and what the messages' key is.

    Returns:
        The number of partitions of the topic of transactions.

    Raises:
        UsageError: a topic is not there, or cannot be evaluated.
        FraudlakeError: the brokers cannot be reached, or refuse the credentials.
    """
    partitions = _partitions(spark, settings, settings.topic, "--topic")
    _partitions(spark, settings, settings.fast_alerts_topic or "", "fast_alerts_topic")
    if partitions + state_partitions > slots:
        raise UsageError(
            f"the fast lane holds a task slot for each of the {partitions} partitions of topic '{settings.topic}' and "
            f"the {state_partitions} of its state, and Spark has {slots}: lower shuffle_partitions, or the partitions"
        )
    _require_account_key(spark, settings)
    return partitions


def _partitions(spark: SparkSession, settings: Settings, topic: str, flag: str) -> int:
    """Return the number of partitions of a topic."""
    jvm = spark._jvm
    assert jvm is not None
    options = jvm.java.util.HashMap()
    for name, value in {**kafka.client_options(settings), **_TIMEOUTS}.items():
        options.put(name.removeprefix("kafka."), value)
    with failures_explained(settings, topic, flag):
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(options)
        try:
            names = jvm.java.util.List.of(topic)
            return int(admin.describeTopics(names).allTopicNames().get().get(topic).partitions().size())
        finally:
            admin.close()


def _require_account_key(spark: SparkSession, settings: Settings) -> None:
    """Refuse messages of which most have another key: accounts' rows would come in no order."""
    messages = (
        spark.read.format("kafka")
        .options(**kafka.client_options(settings))
        .option("subscribe", settings.topic)
        .option("failOnDataLoss", False)
        .load()
        .selectExpr("CAST(key AS STRING)", "get_json_object(CAST(value AS STRING), '$.accountId') AS account")
        .where("account IS NOT NULL")
        .limit(_SAMPLE)
    )
    with failures_explained(settings, settings.topic, "--topic"):
        rows = messages.collect()
    others = [row for row in rows if row["key"] != row["account"]]
    if 2 * len(others) > len(rows):
        example = others[0]
        raise UsageError(
            f"the key of the messages of topic '{settings.topic}' must be their account: {len(others)} of {len(rows)} "
            f"have another, such as {json.dumps(example['key'])} for account {json.dumps(example['account'])}"
        )


@contextmanager
def failures_explained(settings: Settings, topic: str, flag: str) -> Iterator[None]:
    """Replace exceptions of Spark and Java by one line; the originals, which may contain secrets, are dropped."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        reason = kafka.problem(f"{error}\n{kafka.with_causes(error)}")
        if reason is None:
            reason = f"cannot be asked for topic '{topic}': check bootstrap_servers and kafka_options"
        raise FraudlakeError(f"Kafka at {settings.bootstrap_servers} {reason.format(topic=topic, flag=flag)}") from None
