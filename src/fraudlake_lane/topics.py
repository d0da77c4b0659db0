"""Topics of the fast lane: checks them before it starts, with the client and the options of Spark's source."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import TYPE_CHECKING

from fraudlake.errors import UsageError
from fraudlake.kafka import client
from fraudlake.sources import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.settings import Settings

_SAMPLE = 200
"""Number of messages that are sampled to check their key."""


def require(spark: SparkSession, settings: Settings, slots: int, state_partitions: int) -> dict[int, int]:
    """Check that both topics exist, that all partitions have task slots, and that messages are keyed by account.

    Returns:
        The offset of the next message of each partition of the topic of transactions.

    Raises:
        UsageError: a topic does not exist, or cannot be evaluated.
        FraudlakeError: the brokers cannot be reached, or refuse the credentials.
    """
    ends = _end_offsets(spark, settings, settings.topic, "--topic")
    _end_offsets(spark, settings, settings.fast_alerts_topic or "", "--fast-alerts-topic")
    if len(ends) + state_partitions > slots:
        raise UsageError(
            f"the fast lane holds a task slot for each of the {len(ends)} partitions of topic '{settings.topic}' and "
            f"the {state_partitions} of its state, and Spark has {slots}: lower shuffle_partitions, or the partitions"
        )
    _require_account_key(spark, settings)
    return ends


def _end_offsets(spark: SparkSession, settings: Settings, topic: str, flag: str) -> dict[int, int]:
    folder = settings.checkpoints_path / "scratch" / uuid.uuid4().hex
    try:
        return kafka.end_offsets(spark, settings, topic, flag, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_account_key(spark: SparkSession, settings: Settings) -> None:
    """Refuse a topic if most of its messages have another key: an account's rows would arrive out of order."""
    messages = (
        spark.read.format("kafka")
        .options(**client.options(settings))
        .option("subscribe", settings.topic)
        .option("failOnDataLoss", False)
        .load()
        .selectExpr("CAST(key AS STRING)", "get_json_object(CAST(value AS STRING), '$.accountId') AS account")
        .where("account IS NOT NULL")
        .limit(_SAMPLE)
    )
    with client.failures_explained(settings, settings.topic, "--topic"):
        rows = messages.collect()
    others = [row for row in rows if row["key"] != row["account"]]
    if 2 * len(others) > len(rows):
        example = others[0]
        raise UsageError(
            f"the key of the messages of topic '{settings.topic}' must be their account: {len(others)} of {len(rows)} "
            f"have another, such as {json.dumps(example['key'])} for account {json.dumps(example['account'])}"
        )
