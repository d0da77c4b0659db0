"""Auto Loader: landed parquet files stream into a Delta table, with a ``date`` and ``dt`` renamed to ``timestamp``.

Translates: ``flink_parquet_to_delta_silver``, the post's stream from ``cloudFiles`` to the silver table.
Flink: has written the files; it is not part of this step.
Spark: in a workspace the format is ``cloudFiles``; on this machine it is Spark's own file source.
Differs: neither reads a file twice; ``fraudlake ingest`` and ``refine`` do the same with a ledger and a quarantine.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, program
from examples.flink_phrasebook.flink_files import SCHEMA, land

DOCUMENT = "003"
PHRASES = (
    (
        '`spark.readStream.format("cloudFiles").option("cloudFiles.format", "parquet")`',
        '`spark.readStream.format("parquet")` on a laptop; `fraudlake ingest` chooses by where it runs',
        "no notifications, no schema evolution, no rescued data: fraudlake brings these itself",
    ),
    (
        '`withColumn("date", date_format(col("dt"), "yyyy-MM-dd"))`',
        "the same line",
        "fraudlake's tables have a `DATE` in its place",
    ),
    ('`withColumnRenamed("dt", "timestamp")`', "the same line", "nothing"),
    (
        '`option("checkpointLocation", checkpoint_path)`, `writeStream.format("delta")`',
        "the same lines, with `trigger(availableNow=True)`",
        "a job that ends when everything is read is cheaper than one that waits",
    ),
    ('`partitionBy("date")`', "the same line", "liquid clustering takes its place in newer tables"),
)


def to_silver(landed: DataFrame) -> DataFrame:
    """Return landed transactions with ``timestamp`` for ``dt``, and its ``date`` for partitions."""
    return landed.withColumn("date", F.date_format(F.col("dt"), "yyyy-MM-dd")).withColumnRenamed("dt", "timestamp")


def ingest(spark: SparkSession, folder: Path) -> Path:
    """Take what has landed into the silver table, and return its folder."""
    silver = folder / "silver_transactions"
    landed = spark.readStream.format("parquet").schema(SCHEMA).load(str(folder / "transactions"))
    query = to_silver(landed).writeStream.format("delta").partitionBy("date").outputMode("append")
    query = query.option("checkpointLocation", str(folder / "checkpoints")).trigger(availableNow=True)
    query.start(str(silver)).awaitTermination()
    return silver


def main(spark: SparkSession, folder: Path) -> None:
    """Take files in, print the table; once more, which finds nothing new."""
    land(spark, folder / "transactions", files=2)
    silver = ingest(spark, folder)
    print(*spark.read.format("delta").load(str(silver)).columns)
    console.print_rows(spark.read.format("delta").load(str(ingest(spark, folder))).where("alert"))


if __name__ == "__main__":
    program.start(main)
