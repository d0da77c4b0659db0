"""A sink as a table: rows are split, grouped and added up, and inserted into a table by name.

Translates: ``map``, ``flat_map``, ``key_by`` and ``reduce`` over pairs, then ``execute_insert("my_sink")``.
Flink: a table over a connector, here ``print``; the stream's type must be composite, a ROW or a TUPLE.
Spark: ``CREATE TABLE ... USING`` a format, and ``INSERT INTO``; a stream writes with ``toTable``.
Differs: there is no connector ``print`` for a table; rows always have columns.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program
from examples.flink_phrasebook.collection_source import PAIRS

DOCUMENT = "002"
PHRASES = (
    (
        "`CREATE TABLE my_sink (...) WITH ('connector' = ...)`",
        "`CREATE TABLE my_sink (...) USING delta`, or `parquet`, `json`, `csv`, `jdbc`",
        "Kafka is not a table format: use `readStream` and `writeStream`",
    ),
    ("`'connector' = 'print'`", "`foreachBatch` with `show`", "no table"),
    (
        '`table.execute_insert("my_sink")`, `INSERT INTO`',
        '`frame.write.insertInto("my_sink")`, `INSERT INTO`; `writeStream.toTable("my_sink")` for a stream',
        "nothing",
    ),
    ("output type must be composite: `Types.ROW` or `Types.TUPLE`", "every row has named columns", "nothing"),
    (
        "all Java Table and SQL connectors can be used from Python",
        "all data sources can be used from Python, SQL and Scala",
        "nothing",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print what was inserted."""
    rows = spark.createDataFrame(PAIRS, "a INT, b STRING").select((F.col("a") + 1).alias("a"), "b")
    words = rows.select("a", F.explode(F.split("b", r"\|")).alias("b"))
    sums = words.groupBy("b").agg(F.sum("a").cast("int").alias("a")).select("a", "b")

    spark.sql(f"CREATE TABLE my_sink (a INT, b STRING) USING parquet LOCATION '{folder / 'my_sink'}'")
    try:
        sums.write.insertInto("my_sink")
        console.print_rows(spark.table("my_sink"))
    finally:
        spark.sql("DROP TABLE my_sink")


if __name__ == "__main__":
    program.start(main)
