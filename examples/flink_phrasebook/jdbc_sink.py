"""The JDBC sink: a stream writes to a database, each micro-batch in one transaction and only once.

Translates: ``JdbcSink``, with ``add_sink``.
Flink: a statement and a function that fills it; at least once, or exactly once by XA transactions.
Spark: ``foreachBatch`` with the batch writer ``jdbc``, which makes one transaction of each partition.
Differs: with one partition and the micro-batch's number in each row, a repetition is recognized and left out.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from examples.flink_phrasebook.collection_source import PAIRS

DOCUMENT = "002"
PHRASES = (
    (
        "`JdbcSink.sink(statement, builder, options)`",
        '`foreachBatch` with `batch.write.format("jdbc")`',
        "appends or replaces a table; for `INSERT ... ON CONFLICT` use a driver of Python's in `foreachBatch`",
    ),
    (
        "`JdbcSink.exactlyOnceSink` (XA)",
        "one partition, and the micro-batch's number as a column that is asked first",
        "one transaction per micro-batch instead of two phases",
    ),
)

TABLE = "flink_phrasebook"


def main(spark: SparkSession, folder: Path, jdbc_url: str | None) -> None:
    """Write two micro-batches, then both again from a fresh checkpoint, and print the table."""
    table = {"url": jdbc_url or f"jdbc:derby:{folder / 'database'};create=true", "dbtable": TABLE}

    def write(batch: DataFrame, number: int) -> None:
        is_written = not spark.read.format("jdbc").options(**table).load().where(F.col("batch") == number).isEmpty()
        print(f"micro-batch {number} {'is there' if is_written else 'is written'}")
        if not is_written:
            rows = batch.withColumn("batch", F.lit(number)).coalesce(1)
            rows.write.format("jdbc").mode("append").options(**table).save()

    # Derby would write its log into the working folder.
    log = f"SELECT reflect('java.lang.System', 'setProperty', 'derby.stream.error.file', '{folder / 'derby.log'}')"
    spark.sql(log).collect()
    empty = spark.createDataFrame([], "id INT, text STRING, batch INT")
    empty.write.format("jdbc").mode("overwrite").options(**table).save()
    pairs = feed.stream(spark, folder / "input", [PAIRS[:2], PAIRS[2:]], "id INT, text STRING")
    for attempt in ("first", "again"):
        query = pairs.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / attempt))
        query.trigger(availableNow=True).start().awaitTermination()
    console.print_rows(spark.read.format("jdbc").options(**table).load())


if __name__ == "__main__":
    program.start(main)
