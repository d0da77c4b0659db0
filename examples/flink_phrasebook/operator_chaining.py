"""Operator chaining: steps without a shuffle are compiled into one class, as the plan shows.

Translates: ``stream.map(...).filter(...).key_by(...).reduce(...)`` and what is said of chains.
Flink: chained operators run in one thread and hand over objects; a shuffle ends the chain.
Spark: whole-stage code generation makes one Java class of them, ``*(n)`` in the plan; an ``Exchange`` ends the stage.
Differs: what a partition's rows sum up to is computed before the exchange, too, so that less data moves.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import plan, program

DOCUMENT = "001"
PHRASES = (
    (
        "operator chaining",
        "whole-stage code generation: `*(1)` in `explain()`",
        "Python functions are outside the generated class",
    ),
    (
        "a shuffle (`keyBy`, `rebalance`) breaks the chain",
        "`Exchange` in the plan ends the stage",
        "nothing",
    ),
    (
        "`disableChaining()`, `startNewChain()`",
        "none; `spark.sql.codegen.wholeStage=false` is for looking for errors",
        "the optimizer decides",
    ),
)


def main(spark: SparkSession) -> None:
    """Print the plan of a map, a filter, a keyBy and a reduce."""
    spark.conf.set("spark.sql.adaptive.enabled", False)  # an adaptive plan is final only after it ran
    events = spark.range(1000).select((F.col("id") % 7).alias("user_id"), F.rand(1).alias("amount"))
    valid = events.where(F.col("amount") > 0.5)
    print(*plan.operators(valid.groupBy("user_id").agg(F.sum("amount"))), sep="\n")


if __name__ == "__main__":
    program.start(main)
