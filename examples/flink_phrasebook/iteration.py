"""Iterations: supersteps over a bounded table, until nothing changes.

Translates: the DataSet API's iterations: which accounts are connected by payments.
Flink: an operator of the dataflow whose result is fed back, in supersteps.
Spark: a loop in the program, a query each time; in SQL ``WITH RECURSIVE``.
Differs: each superstep is planned again, and its input must be made short: ``localCheckpoint``, or a table between.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, program

DOCUMENT = "004"
PHRASES = (
    (
        "iterations of the DataSet API: bulk and delta, supersteps",
        "a loop in the program; `WITH RECURSIVE` in SQL",
        "there is no feedback edge in a plan, and none in streams",
    ),
)

PAYMENTS = [(1, 2), (2, 3), (3, 4), (7, 8)]


def main(spark: SparkSession) -> None:
    """Print the smallest account that each is connected with, and how many supersteps it took."""
    payments = spark.createDataFrame(PAYMENTS, "one LONG, other LONG")
    both = payments.union(payments.select("other", "one"))
    groups = both.select("one", F.col("one").alias("group")).distinct()
    steps, is_changed = 0, True
    while is_changed:
        heard = both.join(groups.toDF("other", "heard"), "other").groupBy("one").agg(F.min("heard").alias("heard"))
        smaller = groups.join(heard, "one").select("one", F.least("group", "heard").alias("group")).localCheckpoint()
        is_changed = not smaller.exceptAll(groups).isEmpty()
        groups, steps = smaller, steps + 1
    console.print_rows(groups)
    print(steps, "supersteps")


if __name__ == "__main__":
    program.start(main)
