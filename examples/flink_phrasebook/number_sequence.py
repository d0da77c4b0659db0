"""The number sequence: a bounded source that counts.

Translates: ``NumberSequenceSource(1, 1000)`` with ``WatermarkStrategy.for_monotonous_timestamps()``.
Flink: a bounded stream of longs, split over the subtasks; a unified source, so batch and streaming mode both take it.
Spark: ``spark.range(1, 1001)``, split over partitions; for a stream, ``rate`` and ``rate-micro-batch`` count.
Differs: ``range`` excludes its end and is a batch; monotonous timestamps are a watermark without delay.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "002"
PHRASES = (
    ("`NumberSequenceSource(1, 1000)`", "`spark.range(1, 1001)`", "the end is excluded; a batch"),
    (
        "`WatermarkStrategy.for_monotonous_timestamps()`",
        '`withWatermark("timestamp", "0 seconds")`',
        "moves once a micro-batch",
    ),
    (
        "unified sources: `FileSource` and others of `from_source`, in batch and streaming mode",
        "`spark.read.format(x)` and `spark.readStream.format(x)`",
        "the mode is chosen by the call, not by the environment",
    ),
    (
        "`source_name='seq_num_source'`",
        "none for a source; `queryName` names the query",
        "an alias (`frame.alias`) names a frame in plans",
    ),
)


def main(spark: SparkSession) -> None:
    """Print count, ends and sum of the numbers, and how many partitions hold them."""
    numbers = spark.range(1, 1001, 1, numPartitions=4)
    console.print_rows(numbers.agg(F.count("id"), F.min("id"), F.max("id"), F.sum("id")))
    print("partitions:", numbers.select(F.spark_partition_id()).distinct().count())


if __name__ == "__main__":
    program.start(main)
