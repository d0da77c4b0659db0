"""Stateful operators: what an aggregate remembers, looked up in its state store.

Translates: state as an embedded key/value store, partitioned together with the stream.
Flink: state is read from outside by the state processor API, from a savepoint.
Spark: the format ``statestore`` reads a checkpoint's state as a table, while the query runs or not.
Differs: nothing is needed beforehand; state partitions are numbered, and a key's number is that of its rows' partition.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program
from examples.flink_phrasebook.keyed_reduce import EVENTS

DOCUMENT = "004"
PHRASES = (
    (
        "stateful operations: windows, aggregates",
        "`groupBy().agg()`, `dropDuplicates`, stream joins, `transformWithState`",
        "nothing",
    ),
    (
        "state as an embedded key/value store; RocksDB state backend, heap state backend",
        "state store: RocksDB, or in memory with files",
        "`spark.sql.streaming.stateStore.providerClass`",
    ),
    (
        "state only on keyed streams, for the current key",
        "the same after `groupBy`",
        "other keys' state is out of reach, in both",
    ),
    (
        "state and streams are partitioned alike; updates are local",
        "the same: state partition = partition of the exchange",
        "nothing",
    ),
    ("state processor API, queryable state", '`spark.read.format("statestore")`', "`fraudlake state` for its detector"),
    (
        "redistributing state when the parallelism changes",
        "none: the number of state partitions belongs to the checkpoint",
        "a new checkpoint, and the input once more",
    ),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Print a running sum's state after each of two micro-batches."""
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    schema = "user_id STRING, amount INT"
    for number, rows in enumerate(EVENTS):
        stream = feed.stream(spark, folder / "input", [], schema)
        feed.land(folder / "input", number, rows, schema)
        sums = stream.groupBy("user_id").agg(F.sum("amount").alias("amount")).writeStream.outputMode("update")
        sink = sums.format("noop").option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
        sink.start().awaitTermination()
        state = spark.read.format("statestore").load(str(folder / "checkpoint"))
        print(f"after micro-batch {number}")
        console.print_rows(state.select("key.user_id", "value.*"))
    aligned = F.pmod(F.hash("key.user_id"), F.lit(2)) == F.col("partition_id")
    print("each state lies where its key's rows go:", state.where(aligned).count() == state.count())


if __name__ == "__main__":
    program.start(main)
