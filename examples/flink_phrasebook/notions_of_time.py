"""Event, ingestion and processing time: the same out-of-order events, counted by the minute in all three.

Translates: the notions of time.
Flink: event time by timestamp assigners, ingestion time at the source, processing time at each operator.
Spark: all three are columns: the event's own, the file's or Kafka's time stamp, and ``current_timestamp()``.
Differs: ``current_timestamp()`` is one instant for a whole micro-batch, and the same when that is repeated.
"""

from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "004"
PHRASES = (
    ("event time, timestamp assigner", "a column of type `TIMESTAMP`, named in `withWatermark`", "nothing to assign"),
    (
        "ingestion time",
        "`_metadata.file_modification_time` of files, `timestamp` of Kafka's messages",
        "the time at which the source's system got it; bronze also has `_ingested_at`",
    ),
    (
        "processing time",
        "`F.current_timestamp()`",
        "of the micro-batch, not of the operator; a replay of that micro-batch has the same",
    ),
    (
        "processing-time windows",
        "`F.window(F.current_timestamp(), ...)`",
        "results depend on when the stream runs, in both",
    ),
)

SCHEMA = "event LONG"
FIRST, SECOND = ([(feed.ARRIVAL + offset,) for offset in offsets] for offsets in ((-70, -30, -10), (-40, 50)))
"""Seconds since 1970: the first file arrived at 22:13:20, the second, with a late event, at 22:14:20."""


def minute(time: Column) -> Column:
    """Return the minute as text."""
    return F.date_format(time, "HH:mm")


def main(spark: SparkSession, folder: Path) -> None:
    """Print the number of events by minute of each notion; of processing time, by micro-batch."""
    events = feed.stream(spark, folder / "input", [FIRST, SECOND], SCHEMA).select(
        minute(F.timestamp_seconds("event")).alias("event"),
        minute(F.col("_metadata.file_modification_time")).alias("ingestion"),
        F.current_timestamp().alias("processing"),
    )
    query = events.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(str(folder / "events")).awaitTermination()

    counted = spark.read.parquet(str(folder / "events"))
    for notion in ("event", "ingestion"):
        print(notion)
        console.print_rows(counted.groupBy(notion).count())
    instants = counted.groupBy("processing").count().orderBy("processing").select("count")
    print("processing", *(row[0] for row in instants.collect()), sep="\n")


if __name__ == "__main__":
    program.start(main)
