"""OPTIMIZE and ZORDER: rows of an account are together, so that a query of one account reads few files.

Translates: ``OPTIMIZE delta.`...` ZORDER BY (accountId)``.
Flink: nothing corresponds to it.
Spark: the same statement, in open-source Delta Lake, too; minimum and maximum of each file let others be skipped.
Differs: new tables may use liquid clustering instead (``CLUSTER BY``), which excludes partitions.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import program

DOCUMENT = "003"
PHRASES = (
    (
        "``OPTIMIZE delta.`path` ZORDER BY (accountId)``",
        "the same statement, or `DeltaTable.forPath(...).optimize().executeZOrderBy(...)`",
        "`fraudlake optimize` does it for every table that changed",
    ),
    (
        "compaction and indexing of the physical layout",
        "`OPTIMIZE`; statistics of each file (minimum, maximum) skip others",
        "`VACUUM` removes the files that it replaced, after a retention",
    ),
)


def files_of_account(spark: SparkSession, table: str, account: str) -> int:
    """Return how many files' ranges of accounts include one account: those that a query of it must open."""
    ranges = spark.read.format("delta").load(table).groupBy(F.col("_metadata.file_path"))
    bounds = ranges.agg(F.min("accountId").alias("low"), F.max("accountId").alias("high"))
    return bounds.where(F.lit(account).between(F.col("low"), F.col("high"))).count()


def main(spark: SparkSession, folder: Path) -> None:
    """Print the files that a query of an account opens, before and after."""
    table = str(folder / "silver_transactions")
    spark.conf.set("spark.databricks.delta.optimize.maxFileSize", 30_000)
    account = F.format_string("%04d", F.col("id") * 7919 % 1000)
    rows = spark.range(0, 20_000, 1, numPartitions=8).select(
        account.alias("accountId"), F.md5(F.hex("id")).alias("note")
    )
    rows.write.format("delta").save(table)
    print("before:", files_of_account(spark, table, "0500"))
    spark.sql(f"OPTIMIZE delta.`{table}` ZORDER BY (accountId)")
    print("after:", files_of_account(spark, table, "0500"))


if __name__ == "__main__":
    program.start(main)
