"""Batch as a special case of streaming: one function over a bounded and an unbounded table, the same answer.

Translates: batch on streaming, and execution in batch or streaming mode.
Flink: a DataSet is a bounded stream; the runtime mode leaves out checkpoints and sorts instead of keeping state.
Spark: the other way round: a stream is a series of small batches of the same plan, with state between them.
Differs: a function of DataFrames does not know which it is in; ``availableNow`` runs a stream as a batch of new rows.
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "004"
PHRASES = (
    (
        "batch programs are streaming programs over bounded streams",
        "`spark.read` or `spark.readStream`, then the same function",
        "some operations are for batches only: sorting, `limit`, windows over rows",
    ),
    (
        "`RuntimeExecutionMode.BATCH` and `STREAMING`",
        "`read` and `write`, or `readStream` and `writeStream`",
        "`trigger(availableNow=True)`: a stream that ends, with a checkpoint for the next time",
    ),
    (
        "batch needs no checkpoints: recovery replays the input",
        "the same: a failed task reads its partition again",
        "nothing",
    ),
    (
        "batch keeps data in simplified structures, no key/value index",
        "the same: hash aggregates and sorts in memory and on disk, no state store",
        "nothing",
    ),
)


def large_by_account(transactions: DataFrame) -> DataFrame:
    """Return for each account how many transactions it has, and the largest amount."""
    return transactions.groupBy("account_id").agg(F.count("*").alias("transactions"), F.max("amount").alias("largest"))


def main(spark: SparkSession, folder: Path) -> None:
    """Print the batch's answer, and whether the stream's is the same."""
    halves = [feed.TRANSACTIONS[:5], feed.TRANSACTIONS[5:]]
    stream = large_by_account(feed.stream(spark, folder / "input", halves, feed.TRANSACTION))
    batch = large_by_account(spark.read.schema(feed.TRANSACTION).json(str(folder / "input")))
    console.print_rows(batch)

    query = stream.writeStream.outputMode("complete").format("memory").queryName("answer").trigger(availableNow=True)
    query.start().awaitTermination()
    print("the same in two micro-batches:", sorted(spark.table("answer").collect()) == sorted(batch.collect()))


if __name__ == "__main__":
    program.start(main)
