"""keyBy and reduce: a running sum per key, by a built-in aggregate.

Translates: ``stream.key_by(lambda event: event["user_id"]).reduce(SumReducer())``.
Flink: the reducer is called for each element after a key's first, and emits the running value each time.
Spark: ``groupBy`` and ``sum``; in ``update`` mode a micro-batch emits the new value of each key that it touched.
Differs: a key's value comes once a micro-batch, not once a row; an own reducer is a ``StatefulProcessor``.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "001"
PHRASES = (
    (
        '`stream.key_by(lambda event: event["user_id"])`, `keyBy`, `KeyedStream`',
        '`groupBy("user_id")`',
        "groups by columns or expressions; nothing moves until something is computed by group",
    ),
    (
        "`keyed.reduce(SumReducer())`, `ReduceFunction`",
        '`groupBy(...).agg(F.sum("amount"))` in output mode `update`',
        "one result per key and micro-batch; rows of the same micro-batch are added up before",
    ),
    (
        "a custom reducer",
        "`F.reduce` over `F.collect_list` in a batch; a `StatefulProcessor` in a stream",
        "there is no `reduce` with a function on groups",
    ),
    (
        "all of a key's records go to the same operator instance",
        "all of a key's rows of a micro-batch, and its state, are in one partition",
        "the partition may run on another machine in the next micro-batch",
    ),
)

EVENTS: list[list[feed.Row]] = [[("ann", 5), ("bob", 1), ("ann", 7)], [("bob", 2), ("eve", 4)]]


def main(spark: SparkSession, folder: Path) -> None:
    """Print the sums that each micro-batch changed."""
    events = feed.stream(spark, folder / "input", EVENTS, "user_id STRING, amount INT")
    sums = events.groupBy("user_id").agg(F.sum("amount"))
    console.print_stream(sums, folder / "checkpoint", "update")


if __name__ == "__main__":
    program.start(main)
