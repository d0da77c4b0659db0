"""Order after an exchange: a key's rows come together, but ordered only on request.

Translates: order holds within each pair of sending and receiving subtasks, so within each key.
Flink: records of a key from one sender keep their order; those of several senders mix.
Spark: an exchange promises no order at all; ``sortWithinPartitions`` makes one, as do windows and sorted groups.
Differs: if "next" matters, a Spark program names the column of the order.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "004"
PHRASES = (
    (
        "order within a key holds from sender to receiver",
        "none after an exchange: `sortWithinPartitions`, or sort in the processor",
        "the order is that of a column (event time, offset), not of arrival",
    ),
    (
        "results of different keys come in no fixed order",
        "the same: `orderBy` if it matters",
        "a stream cannot be ordered as a whole",
    ),
)


def arrivals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return for each key of a partition how many rows it has, and whether they came in ascending order."""
    numbers: dict[int, list[int]] = {}
    for batch in batches:
        for key, number in zip(batch.column("key").to_pylist(), batch.column("number").to_pylist(), strict=True):
            numbers.setdefault(key, []).append(number)
    rows = [{"key": key, "rows": len(seen), "ascending": seen == sorted(seen)} for key, seen in numbers.items()]
    yield pa.RecordBatch.from_pylist(
        rows, pa.schema([("key", pa.int64()), ("rows", pa.int64()), ("ascending", pa.bool_())])
    )


def report(keyed: DataFrame) -> None:
    """Print a line for each key and partition."""
    console.print_rows(keyed.mapInArrow(arrivals, "key LONG, rows LONG, ascending BOOLEAN"))


def main(spark: SparkSession) -> None:
    """Print what arrives after an exchange from four senders that have every key: sorted, then as it comes."""
    mixed = F.col("id") * 7919 % 1000  # the numbers in an order of their own
    sent = spark.range(0, 1000, 1, numPartitions=4).select((mixed % 3).alias("key"), mixed.alias("number"))
    report(sent.repartition(2, "key").sortWithinPartitions("key", "number"))
    report(sent.repartition(2, "key"))


if __name__ == "__main__":
    program.start(main)
