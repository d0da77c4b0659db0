"""A Delta table as a streaming source: what is appended to it flows on, though it is in files.

Translates: ``streaming_delta_silver_table = spark.readStream.format("delta")...``.
Flink: reads Kafka for this; its Delta connector can read a table continuously, too.
Spark: each micro-batch reads the commits since the last one; the first takes the table as it is.
Differs: rows that are updated or deleted stop the stream, unless ``skipChangeCommits`` leaves those commits out.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import console, feed, program

DOCUMENT = "003"
PHRASES = (
    (
        '`spark.readStream.format("delta").load(path)`',
        '`spark.readStream.format("delta").load(path)`, or `.table(name)`',
        "`withEventTimeOrder` if a watermark follows; `skipChangeCommits` if rows are rewritten",
    ),
    (
        "an object store as a streaming source",
        "a table's log names what is new, so nothing is listed",
        "latency is that of commits: seconds",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print what a stream reads of a table: first what is there, then what was appended."""
    table = str(folder / "silver_transactions")
    for rows in (feed.TRANSACTIONS[:2], feed.TRANSACTIONS[2:4]):
        spark.createDataFrame(rows, feed.TRANSACTION).write.format("delta").mode("append").save(table)
        console.print_stream(spark.readStream.format("delta").load(table), folder / "checkpoint")


if __name__ == "__main__":
    program.start(main)
