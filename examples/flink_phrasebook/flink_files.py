"""Flink's files: small parquet files with the schema that the fraud detection application writes.

Translates: the schema of the post: ``dt``, ``accountId``, ``amount``, ``alert``.
Flink: a file sink writes a file per subtask and checkpoint, a few kilobytes each.
Spark: the schema is declared, not inferred, and read from all files as one table.
Differs: a declared ``TIMESTAMP`` reads every encoding of Flink's sinks to the same instant; an inferred one does not.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "003"
PHRASES = (
    (
        "the stateful application: `FraudDetector` with `flagState`, `timerState`, `onTimer` and `cleanUp`",
        "example `fraud_detector_timer`",
        "row by row, as in the post; `fraudlake detect` is the fast one",
    ),
    (
        "`dt: timestamp, accountId: string, amount: double, alert: boolean`, `flink_parquet_schema`",
        '`.schema("dt TIMESTAMP, accountId STRING, amount DOUBLE, alert BOOLEAN")`',
        "types and edge cases: [ingestion.md](../how-to/ingestion.md)",
    ),
    (
        "small files: one for each subtask and checkpoint",
        "Delta's compaction, further down",
        "`fraudlake simulate` writes such files without Flink",
    ),
    (
        "low latency for operations, columns for analytics",
        "the same rows in Kafka or files, and in Delta tables",
        "nothing",
    ),
    (
        "Flink's own connector to Delta Lake",
        "readable as any Delta table: `spark.readStream.table(...)`",
        "fraudlake reads files and Kafka, and needs no connector in Flink",
    ),
)

SCHEMA = "dt TIMESTAMP, accountId STRING, amount DOUBLE, alert BOOLEAN"


def land(spark: SparkSession, folder: Path, files: int = 5) -> None:
    """Write the tutorial's transactions as so many parquet files, with the verdicts of Flink's detector."""
    flagged = F.col("timestamp").isin(1002, 1007, 1009)
    rows = spark.createDataFrame(feed.TRANSACTIONS, feed.TRANSACTION).select(
        F.timestamp_millis("timestamp").alias("dt"),
        F.col("account_id").cast("string").alias("accountId"),
        "amount",
        flagged.alias("alert"),
    )
    rows.repartitionByRange(files, "dt").write.mode("append").parquet(str(folder))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """Read files as Flink leaves them, with the schema declared."""
    return spark.read.schema(SCHEMA).parquet(str(folder))


def main(spark: SparkSession, folder: Path) -> None:
    """Print the schema, the number of files, and the rows with an alert."""
    land(spark, folder / "transactions")
    transactions = read(spark, folder / "transactions")
    transactions.printSchema()
    print("files:", len(list((folder / "transactions").glob("*.parquet"))))
    console.print_rows(transactions.where("alert"))


if __name__ == "__main__":
    program.start(main)
