"""Kafka: a topic's stream of messages, its offsets and lag, and the client's failures as readable errors."""

from __future__ import annotations

import functools
import json
import operator
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.kafka import client

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.settings import Settings

EARLIEST = -2
"""Spark's number for the first offset that a partition still has."""
_SHORT_TIMEOUTS = {"default.api.timeout.ms": "5000", "request.timeout.ms": "4000"}
_MESSAGES_PER_TASK = 50_000


def end_offsets(spark: SparkSession, settings: Settings, topic: str, flag: str, checkpoint: Path) -> dict[int, int]:
    """Return the offset of each partition's next message; it takes some seconds, even if no broker answers.

    A stream with ``availableNow`` that starts at the latest offsets reads nothing and reports every partition's
    offset.

    Args:
        spark: the session.
        settings: brokers and the options of their client.
        topic: the topic's name.
        flag: the flag that names the topic, for messages.
        checkpoint: a folder for the stream's checkpoint, which is not needed afterwards.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    stream = (
        spark.readStream.format("kafka")
        .options(**client.options(settings))
        .options(**{f"kafka.{name}": value for name, value in _SHORT_TIMEOUTS.items()})
        .option("fetchOffset.numRetries", 1)
        .option("subscribe", topic)
        .option("startingOffsets", "latest")
        .load()
    )
    with client.failures_explained(settings, topic, flag):
        query = (
            stream.writeStream.format("noop")
            .queryName(f"end-offsets-{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    report = query.lastProgress
    if report is None:
        raise FraudlakeError(f"cannot read the offsets of Kafka topic '{topic}'")
    offsets = json.loads(report["sources"][0]["endOffset"])[topic]
    return {int(number): offset for number, offset in offsets.items()}


class Topic:
    """A Kafka topic that the lake's settings name: its stream, offsets, lag and errors.

    Args:
        lake: the lake.
        checkpoint: the checkpoint of the stream that reads the topic; it may not exist yet.
        setting: the setting with the topic's name.

    Raises:
        UsageError: the checkpoint belongs to another topic.
    """

    def __init__(
        self, lake: Lake, checkpoint: Checkpoint, setting: Literal["topic", "fast_alerts_topic"] = "topic"
    ) -> None:
        """Read the offsets at which the stream began from its checkpoint."""
        self._lake = lake
        self._spark = lake.session
        self._settings = lake.settings
        self.name: str = getattr(lake.settings, setting)
        self._flag = f"--{setting.replace('_', '-')}"
        # The setting `starting_offsets` is for transactions; all alerts are read.
        self._starting = lake.settings.starting_offsets if setting == "topic" else "earliest"
        self._checkpoint = checkpoint.folder
        self._first = _first_offsets(self._checkpoint)
        others = set(self._first or ()) - {self.name}
        if others:
            raise UsageError(
                f"this lake reads the Kafka topic '{min(others)}': for {self._flag} {self.name} use another --lake"
            )

    def read_stream(self) -> DataFrame:
        """Return the topic as a stream of rows of Spark's Kafka source; checks first that the topic exists.

        Raises:
            FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
        """
        settings = self._settings
        starting = self._starting
        ends = self.end_offsets()
        if starting not in ("earliest", "latest"):
            offsets = {int(number): offset for number, offset in json.loads(starting)[self.name].items()}
            unknown = sorted(set(offsets) - set(ends))
            if unknown:
                raise UsageError(f"--starting-offsets: topic '{self.name}' has no partition {unknown[0]}")
            starting = self._json({**dict.fromkeys(ends, EARLIEST), **offsets})
        return (
            self._spark.readStream.format("kafka")
            .options(**client.options(settings))
            .option("subscribe", self.name)
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
            .option("failOnDataLoss", settings.fail_on_data_loss)
            .option("maxRecordsPerPartition", _MESSAGES_PER_TASK)
            # A broker is down for some seconds while it restarts.
            .option("fetchOffset.numRetries", 30)
            .load()
        )

    def end_offsets(self) -> dict[int, int]:
        """Return the offset of each partition's next message: :func:`end_offsets`."""
        # Serverless compute requires a separate checkpoint for each stream.
        with self._lake.scratch_checkpoint() as folder:
            return end_offsets(self._spark, self._settings, self.name, self._flag, folder)

    def lag(self, last_offsets: dict[int, int]) -> int:
        """Count the messages that are still to be read, by reading them.

        Args:
            last_offsets: the last offset in bronze, by partition.

        Raises:
            FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
        """
        ends = self.end_offsets()
        starts = {number: self._start(number, end, last_offsets) for number, end in ends.items()}
        if starts == ends:
            return 0
        unread = self.read(starts, ends)
        with client.failures_explained(self._settings, self.name, self._flag):
            return unread.count()

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
        """Return the messages between offsets of partitions, as rows of Spark's Kafka source.

        Messages that the topic no longer has are left out.
        """
        return (
            self._spark.read.format("kafka")
            .options(**client.options(self._settings))
            .option("assign", json.dumps({self.name: sorted(ends)}))
            .option("startingOffsets", self._json(starts))
            .option("endingOffsets", self._json(ends))
            .option("failOnDataLoss", False)
            .load()
        )

    def read_so_far(self, silver: DataFrame, batch: int) -> tuple[DataFrame, DataFrame]:
        """Return the transactions read up to a micro-batch: those in silver, and the messages after them.

        Args:
            silver: rows of ``silver_transactions``.
            batch: the number of the micro-batch.
        """
        begins = (self._first or {}).get(self.name, {})
        ends = _offsets((self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])[self.name]
        last = silver.where(self._is_between(begins, ends)).groupBy("source").agg(F.max("position").alias("last"))
        next_offsets = {row["source"]: row["last"] + 1 for row in last.collect()}
        landed = {number: next_offsets.get(_source(self.name, number), begins.get(number, 0)) for number in ends}
        return silver.where(self._is_between(begins, landed)), self.read(landed, ends)

    def _is_between(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> Column:
        """Return the condition that rows of silver are between these offsets of a partition."""
        conditions = (
            (F.col("source") == _source(self.name, number))
            & (F.col("position") >= begins.get(number, 0))
            & (F.col("position") < end)
            for number, end in ends.items()
        )
        return functools.reduce(operator.or_, conditions, F.lit(False))

    def explain(self, failure: str) -> str | None:
        """Return one line with cause and remedy of a failure of the Kafka client; None for any other failure."""
        return client.explain(self._settings, self.name, self._flag, failure)

    def _start(self, number: int, end: int, last_offsets: dict[int, int]) -> int:
        """Return the first offset of a partition that is still to be read."""
        if number in last_offsets:
            return min(last_offsets[number] + 1, end)
        if self._first is not None:  # a partition added since is read from its beginning
            return min(self._first[self.name].get(number, EARLIEST), end)
        starting = self._starting
        if starting in ("earliest", "latest"):
            return EARLIEST if starting == "earliest" else end
        offset = json.loads(starting)[self.name].get(str(number), EARLIEST)
        return end if offset == -1 else min(offset, end)

    def _json(self, offsets: Mapping[int, int]) -> str:
        return json.dumps({self.name: {str(number): offset for number, offset in offsets.items()}})


class Gaps:
    """Offsets of a topic that were skipped between micro-batches, because their messages are gone.

    Args:
        topic: the topic's name.
        last_offsets: the last offset in bronze, by partition.
    """

    def __init__(self, topic: str, last_offsets: dict[int, int]) -> None:
        """Expect each partition's next offset."""
        self._topic = topic
        self._last = dict(last_offsets)

    def missing_before(self, batch: DataFrame) -> list[str]:
        """Return a sentence for each gap between the messages so far and those of a micro-batch."""
        ranges = batch.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        return list(self._messages(sorted((row["partition"], row["first"], row["last"]) for row in ranges.collect())))

    def _messages(self, ranges: list[tuple[int, int, int]]) -> Iterator[str]:
        for partition, first, last in ranges:
            expected = self._last.get(partition, first - 1) + 1
            if first > expected:
                yield (
                    f"Kafka topic '{self._topic}', partition {partition}: {first - expected:,} offsets "
                    f"({expected} to {first - 1}) have no messages any more"
                )
            self._last[partition] = max(last, expected - 1)


def last_offsets(bronze: DataFrame, topic: str) -> dict[int, int]:
    """Return the last offset of a topic in bronze, by partition."""
    of_topic = bronze.where(F.col("_topic") == topic)
    last = of_topic.groupBy("_partition").agg(F.max("_offset").alias("last")).collect()
    return {row["_partition"]: row["last"] for row in last}


def is_read_by_stream(checkpoint: Path) -> Column:
    """Return the condition for rows of silver that the stream of this checkpoint reads from their topic."""
    is_read = F.lit(False)
    for topic, partitions in (_first_offsets(checkpoint) or {}).items():
        first = F.lit(0)  # a partition added since is read from its beginning
        for number, offset in partitions.items():
            first = F.when(F.col("source") == _source(topic, number), F.lit(offset)).otherwise(first)
        is_read = is_read | (F.col("source").startswith(f"kafka:{topic}/") & (F.col("position") >= first))
    return is_read


def missing_offsets(lake: Lake) -> int:
    """Count the offsets without a row in ``bronze_transactions``, between the first and the last row of each partition.

    Either retention or compaction removed their messages before they were read, or they are the control records of a
    producer's transactions.
    """
    gaps = lake.store.query(
        "SELECT max(_offset) - min(_offset) + 1 - count(DISTINCT _offset) AS missing "
        f"FROM {tables.BRONZE_TRANSACTIONS.name} WHERE _topic IS NOT NULL GROUP BY _topic, _partition",
        tables.BRONZE_TRANSACTIONS,
    )
    return sum(gaps["missing"].to_pylist())


def _first_offsets(checkpoint: Path) -> dict[str, dict[int, int]] | None:
    """Return the offsets at which a stream began, by topic and partition; None if it has not begun."""
    file = checkpoint / "sources" / "0" / "0"
    if not file.exists():
        return None
    text = file.read_text()
    return _offsets(text[text.index("{") :])


def _offsets(text: str) -> dict[str, dict[int, int]]:
    """Read Spark's JSON of offsets by topic and partition."""
    topics = json.loads(text)
    return {name: {int(number): offset for number, offset in partitions.items()} for name, partitions in topics.items()}


def _source(topic: str, partition: int) -> str:
    """Return the ``source`` of rows of silver from a partition."""
    return f"kafka:{topic}/{partition:010d}"
