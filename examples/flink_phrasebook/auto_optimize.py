"""Auto Optimize: small files become few while they are written, and after.

Translates: the two ``spark.conf.set`` of the post: optimized writes and auto compaction.
Flink: its sink has left a file per subtask and checkpoint.
Spark: Delta gathers rows before it writes (optimized writes), and merges small files after a commit (auto compaction).
Differs: the settings' names: ``spark.databricks.delta.optimizeWrite.enabled`` and ``...autoCompact.enabled``.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import program
from examples.flink_phrasebook.flink_files import land, read

DOCUMENT = "003"
PHRASES = (
    (
        "optimized writes, for the session",
        '`spark.conf.set("spark.databricks.delta.optimizeWrite.enabled", "true")`',
        "as a property of the table: `delta.autoOptimize.optimizeWrite`",
    ),
    (
        "auto compaction, for the session",
        '`spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")`',
        "as a property of the table: `delta.autoOptimize.autoCompact`; counts files of a partition (`minNumFiles`)",
    ),
)

_DELTA = "spark.databricks.delta"


def main(spark: SparkSession, folder: Path) -> None:
    """Print how many files the same rows take, without either, with each."""
    land(spark, folder / "transactions", files=5)
    transactions = read(spark, folder / "transactions").repartition(5)
    spark.conf.set(f"{_DELTA}.autoCompact.minNumFiles", 2)
    for name in ("none", "optimizeWrite", "autoCompact"):
        for setting in ("optimizeWrite", "autoCompact"):
            spark.conf.set(f"{_DELTA}.{setting}.enabled", setting == name)
        table = str(folder / name)
        transactions.write.format("delta").save(table)
        print(name, spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]["numFiles"])
    for setting in ("optimizeWrite.enabled", "autoCompact.enabled", "autoCompact.minNumFiles"):
        spark.conf.unset(f"{_DELTA}.{setting}")


if __name__ == "__main__":
    program.start(main)
