"""Kafka: settings become the options of Spark's Kafka source, and a topic its offsets, its lag and its errors."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fraudlake.checkpoint import Checkpoint
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings

EARLIEST = -2
"""What Spark takes for the first offset that a partition still has."""
_PATIENCE = {"default.api.timeout.ms": "5000", "request.timeout.ms": "4000"}
_MESSAGES_A_TASK = 50_000


def client_options(settings: Settings) -> dict[str, str]:
    """Return what a Kafka client of Spark needs, secrets in clear: for the source, and the same for a sink.

    Messages of a transaction that was not committed are not read: Flink's exactly-once sink writes in transactions.
    """
    own = {"bootstrap.servers": settings.bootstrap_servers or "", "isolation.level": "read_committed"}
    given = {name: value.get_secret_value() for name, value in settings.kafka_options.items()}
    return {f"kafka.{name}": value for name, value in {**own, **given}.items()}


class Topic:
    """The topic of the lake's settings, as far as its cluster and the checkpoint of the stream that reads it tell.

    Args:
        lake: the lake.
        checkpoint: of the stream that reads the topic; it need not be there yet.

    Raises:
        UsageError: the checkpoint belongs to another topic.
    """

    def __init__(self, lake: Lake, checkpoint: Checkpoint) -> None:
        """Take the settings' topic, and where the stream that reads it began."""
        self._lake, self._spark, self._settings, self.name = lake, lake.spark, lake.settings, lake.settings.topic
        self._first = _first_offsets(checkpoint.folder)
        others = set(self._first or ()) - {self.name}
        if others:
            raise UsageError(
                f"this lake reads the Kafka topic '{min(others)}': for --topic {self.name} use another --lake"
            )

    def read_stream(self) -> DataFrame:
        """Return the topic as a stream, having made sure that it is there: rows of Spark's Kafka source.

        Raises:
            FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
        """
        settings = self._settings
        ends = self.end_offsets()
        starting = settings.starting_offsets
        if starting not in ("earliest", "latest"):
            given = {int(number): offset for number, offset in json.loads(starting)[self.name].items()}
            unknown = sorted(set(given) - set(ends))
            if unknown:
                raise UsageError(f"--starting-offsets: topic '{self.name}' has no partition {unknown[0]}")
            starting = self._json({**dict.fromkeys(ends, EARLIEST), **given})
        return (
            self._spark.readStream.format("kafka")
            .options(**client_options(settings))
            .option("subscribe", self.name)
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", settings.max_offsets_per_trigger)
            .option("failOnDataLoss", settings.fail_on_data_loss)
            .option("maxRecordsPerPartition", _MESSAGES_A_TASK)
            # A broker that restarts is away for some seconds.
            .option("fetchOffset.numRetries", 30)
            .load()
        )

    def end_offsets(self) -> dict[int, int]:
        """Return the offset that each partition's next message gets; it takes seconds, without an answer too.

        A stream that begins at the end and ends at once reads nothing, and reports the offsets of every partition.

        Raises:
            FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
        """
        stream = (
            self._spark.readStream.format("kafka")
            .options(**client_options(self._settings))
            .options(**{f"kafka.{name}": value for name, value in _PATIENCE.items()})
            .option("fetchOffset.numRetries", 1)
            .option("subscribe", self.name)
            .option("startingOffsets", "latest")
            .load()
        )
        # Serverless compute starts no stream without a checkpoint of its own.
        with self._failures_explained(), self._lake.scratch_checkpoint() as folder:
            query = (
                stream.writeStream.format("noop")
                .queryName(f"end-offsets-{uuid.uuid4().hex[:8]}")
                .option("checkpointLocation", str(folder))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        report = query.lastProgress
        if report is None:
            raise FraudlakeError(f"cannot read the offsets of Kafka topic '{self.name}'")
        offsets = json.loads(report["sources"][0]["endOffset"])[self.name]
        return {int(number): offset for number, offset in offsets.items()}

    def lag(self, held: dict[int, int]) -> int:
        """Count the messages that are to be read and are not yet, by reading them.

        Args:
            held: the last offset that bronze holds, by partition.

        Raises:
            FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
        """
        ends = self.end_offsets()
        starts = {number: self._start(number, end, held) for number, end in ends.items()}
        if starts == ends:
            return 0
        unread = (
            self._spark.read.format("kafka")
            .options(**client_options(self._settings))
            .option("subscribe", self.name)
            .option("startingOffsets", self._json(starts))
            .option("endingOffsets", self._json(ends))
            .option("failOnDataLoss", False)
            .load()
        )
        with self._failures_explained():
            return unread.count()

    def explain(self, failure: str) -> str | None:
        """Say in one line what is wrong, and what to do, where Spark's words are those of a Kafka client."""
        if "may have been lost" in failure or "DATA_LOSS" in failure:
            return (
                f"messages of Kafka topic '{self.name}' were removed before they were read{_range(failure)}: to go on "
                "with those that are left, set fail_on_data_loss to false (--fail-on-data-loss false)"
            )
        for words, told in (
            (("SaslAuthenticationException", "Authentication failed"), "refuses the credentials: check kafka_options"),
            (("AuthorizationException",), f"does not allow to read topic '{self.name}': ask for the right to it"),
            (("UnknownTopicOrPartition",), f"has no topic '{self.name}': create it, or name another with --topic"),
            (("SslAuthenticationException", "SSLHandshake"), "refuses TLS: check the ssl.* options in kafka_options"),
            (("TimeoutException",), "does not answer: check --bootstrap-servers, and security.protocol"),
        ):
            if any(word in failure for word in words):
                return f"Kafka at {self._settings.bootstrap_servers} {told}"
        if "Failed to create new KafkaAdminClient" in failure or "ConfigException" in failure:
            # A stream's error goes no deeper, and Kafka's own words may hold what was given to it.
            return (
                f"no Kafka client can be made for {self._settings.bootstrap_servers}: its host name is unknown, "
                "or an option in kafka_options is missing or wrong"
            )
        return None

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        """Raise one line for what Spark raises; the original, which may hold secrets, goes no further."""
        try:
            yield
        except PySparkException as error:
            told = self.explain(str(error)) or f"cannot read Kafka topic '{self.name}'"
            raise FraudlakeError(told) from None

    def _start(self, number: int, end: int, held: dict[int, int]) -> int:
        """Find the first offset of a partition that is to be read and is not in bronze."""
        if number in held:
            return min(held[number] + 1, end)
        if self._first is not None:  # a partition added since is read from its beginning
            return min(self._first[self.name].get(number, EARLIEST), end)
        starting = self._settings.starting_offsets
        if starting in ("earliest", "latest"):
            return EARLIEST if starting == "earliest" else end
        offset = json.loads(starting)[self.name].get(str(number), EARLIEST)
        return end if offset == -1 else min(offset, end)

    def _json(self, offsets: dict[int, int]) -> str:
        return json.dumps({self.name: {str(number): offset for number, offset in offsets.items()}})


class Gaps:
    """Offsets of a topic that no message came from, seen as the micro-batches pass.

    Args:
        held: the last offset that bronze holds, by partition.
    """

    def __init__(self, topic: str, held: dict[int, int]) -> None:
        """Begin behind what bronze holds."""
        self._topic, self._last = topic, dict(held)

    def before(self, batch: DataFrame) -> list[str]:
        """Say, a sentence each, which offsets are missing between the messages so far and those of a micro-batch."""
        ranges = batch.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        return list(self._take(sorted((row["partition"], row["first"], row["last"]) for row in ranges.collect())))

    def _take(self, ranges: list[tuple[int, int, int]]) -> Iterator[str]:
        for partition, first, last in ranges:
            expected = self._last.get(partition, first - 1) + 1
            if first > expected:
                yield (
                    f"Kafka topic '{self._topic}', partition {partition}: {first - expected:,} offsets "
                    f"({expected} to {first - 1}) held no message any more"
                )
            self._last[partition] = max(last, expected - 1)


def places(bronze: DataFrame, topic: str) -> dict[int, int]:
    """Return the last offset that bronze holds of a topic, by partition."""
    of_topic = bronze.where(F.col("_topic") == topic)
    last = of_topic.groupBy("_partition").agg(F.max("_offset").alias("last")).collect()
    return {row["_partition"]: row["last"] for row in last}


def covered(checkpoint: Path) -> Column:
    """Tell of rows of silver whether a stream that reads their topic from this checkpoint takes them itself."""
    at = F.lit(False)
    for topic, partitions in (_first_offsets(checkpoint) or {}).items():
        first = F.lit(0)  # a partition added since is read from its beginning
        for number, offset in partitions.items():
            first = F.when(F.col("source") == f"kafka:{topic}/{number:010d}", F.lit(offset)).otherwise(first)
        at = at | (F.col("source").startswith(f"kafka:{topic}/") & (F.col("position") >= first))
    return at


def missing(lake: Lake) -> int:
    """Count the offsets between the first and the last row of each partition that bronze has no row for.

    Retention removed their messages before they were read, or they never were messages: compaction, and the marks
    that a producer's transactions leave, take offsets too.
    """
    gaps = lake.query(
        tables.BRONZE_TRANSACTIONS,
        "max(_offset) - min(_offset) + 1 - count(DISTINCT _offset) AS missing",
        "WHERE _topic IS NOT NULL GROUP BY _topic, _partition",
    )
    return sum(gaps["missing"].to_pylist())


def _first_offsets(checkpoint: Path) -> dict[str, dict[int, int]] | None:
    """Read where a stream began, by topic and partition; None where it has not begun."""
    file = checkpoint / "sources" / "0" / "0"
    if not file.exists():
        return None
    text = file.read_text()
    topics = json.loads(text[text.index("{") :])
    return {name: {int(number): offset for number, offset in partitions.items()} for name, partitions in topics.items()}


def _range(failure: str) -> str:
    """Find which offsets Spark missed, where it says."""
    found = re.search(r"in offset \[(\d+), (\d+)\) for topic partition \S+-(\d+)", failure)
    return f" (partition {found[3]}, between offsets {found[1]} and {found[2]})" if found else ""
