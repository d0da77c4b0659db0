"""Data generators: rows out of nothing, bounded and unbounded.

Translates: ``CREATE TABLE my_source (...) WITH ('connector' = 'datagen', 'number-of-rows' = '10')``.
Flink: the connector ``datagen`` fills each column with random or sequential values.
Spark: ``range`` or ``rate`` count, and functions such as ``rand`` and ``randstr`` make the columns.
Differs: columns are expressions, so that they may depend on each other; a seed makes them the same every time.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "002"
PHRASES = (
    (
        "`'connector' = 'datagen'`, `'number-of-rows' = '10'`",
        "`spark.range(10)` with columns of `F.rand`, `F.randstr`, `F.uniform`",
        "a seed repeats the values",
    ),
    (
        "an unbounded `datagen`, `'rows-per-second'`",
        '`readStream.format("rate").option("rowsPerSecond", ...)`',
        "columns `timestamp` and `value`",
    ),
)


def generated(numbers: DataFrame) -> DataFrame:
    """Turn a column ``value`` into the columns ``a`` (a number below 100) and ``b`` (five characters)."""
    return numbers.select(
        (F.col("value") * 37 % 100).cast("int").alias("a"), F.md5(F.hex("value")).substr(1, 5).alias("b")
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Print ten generated rows; then whether a stream generates the same."""
    batch = generated(spark.range(10).toDF("value"))
    console.print_rows(batch)

    table = str(folder / "generated")
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    sink = generated(rate).writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = sink.trigger(processingTime="1 hour").start(table)
    while not query.lastProgress:
        query.awaitTermination(1)
    query.stop()
    print(
        "the stream's first ten are the same:", sorted(batch.collect()) == sorted(spark.read.parquet(table).collect())
    )


if __name__ == "__main__":
    program.start(main)
