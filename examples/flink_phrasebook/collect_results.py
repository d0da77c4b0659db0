"""Results in the client: rows come one after the other into the Python program.

Translates: ``with ds.execute_and_collect() as results: for result in results: ...``.
Flink: runs the job, and streams its result to the client, which closes it.
Spark: ``toLocalIterator`` fetches a partition at a time; ``collect`` fetches all; a stream goes through a sink.
Differs: ``toLocalIterator`` reads batches only; the sink ``memory`` keeps a stream's rows as a table for the client.
"""

from pathlib import Path

from pyspark.sql import SparkSession

from examples import console, feed, program
from examples.flink_phrasebook.collection_source import PAIRS

DOCUMENT = "002"
PHRASES = (
    (
        "`ds.execute_and_collect()`",
        "`frame.toLocalIterator()`, `frame.collect()`",
        "the iterator holds one partition in memory, `collect` all",
    ),
    (
        "`execute_and_collect` of an unbounded stream",
        '`writeStream.format("memory").queryName("results")`, then `spark.table("results")`',
        "everything stays in the driver's memory: for tests",
    ),
    ("limit the number of rows collected", "`frame.limit(n)`, `frame.take(n)`", "nothing"),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print rows of a batch as they are fetched; then those of a stream."""
    for row in spark.createDataFrame(PAIRS, "id INT, text STRING").toLocalIterator():
        print(row)
    stream = feed.stream(spark, folder / "input", [PAIRS], "id INT, text STRING")
    query = stream.writeStream.format("memory").queryName("results").trigger(availableNow=True).start()
    query.awaitTermination()
    console.print_rows(spark.table("results").limit(2))


if __name__ == "__main__":
    program.start(main)
