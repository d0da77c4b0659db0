"""Kafka: sends each event as a message to a topic, with its id as the key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake.delivery import event
from fraudlake.delivery.event import Event
from fraudlake.delivery.sink import Outcome
from fraudlake.kafka import client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUTS = {"max.block.ms": "20000", "request.timeout.ms": "15000", "delivery.timeout.ms": "60000"}
"""Time for which Kafka's client retries by itself; its defaults are two minutes and more."""
_CLIENTS_EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.(?:\w+\.)*(\w+Exception)")


class KafkaSink:
    """Writes messages through Spark, whose producer retries and waits until all in-sync replicas have a message.

    Args:
        topic: the topic.
        options: the options of Spark's Kafka client, with the prefix ``kafka.``; they override the time-outs.
        spark: the session of the micro-batch.
    """

    def __init__(self, topic: str, options: Mapping[str, str], spark: SparkSession) -> None:
        """Write to the topic."""
        self._topic = topic
        self._spark = spark
        self._options = {**{f"kafka.{name}": value for name, value in _TIMEOUTS.items()}, **options}

    def send(self, events: Sequence[Event], name: str) -> list[Outcome]:
        """Write a message for each event. If one fails, all count as not delivered: Spark does not say which."""
        keys = [one["id"] for one in events]
        values = [event.as_json(one) for one in events]
        header = F.struct(F.lit("content-type").alias("key"), F.lit(event.CONTENT_TYPE).cast("binary").alias("value"))
        messages = self._spark.createDataFrame(pa.table({"key": keys, "value": values}))
        writer = messages.coalesce(1).withColumn("headers", F.array(header)).write.format("kafka")
        try:
            writer.options(**self._options).option("topic", self._topic).option("includeHeaders", True).save()
            outcome = Outcome(1)
        except Exception as error:  # of PySpark over Spark Connect, of py4j here
            # The messages of Kafka's client may contain secrets, the names of its exceptions do not.
            failure = client.with_causes(error)
            names = dict.fromkeys(_CLIENTS_EXCEPTION.findall(failure))
            if not names:
                raise
            problem = client.problem(failure)
            reason = (
                problem.format(topic=self._topic, flag="--delivery-topic") if problem else "fails: " + ", ".join(names)
            )
            outcome = Outcome(1, f"Kafka {reason}")
        return [outcome] * len(events)
