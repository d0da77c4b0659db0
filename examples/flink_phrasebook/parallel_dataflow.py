"""The parallel dataflow: sources, transformations and sinks as a plan, with the exchanges between its stages.

Translates: programs and dataflows, one-to-one and redistributing streams.
Flink: operators and streams form a graph whose subtasks all run at the same time and send records to each other.
Spark: a plan is cut into stages at its exchanges; a stage's tasks write for the next stage, which reads them.
Differs: stages of a micro-batch run one after the other; an exchange goes through files, not through connections.
"""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import plan, program

DOCUMENT = "004"
PHRASES = (
    ("streams and transformations; a dataflow is a DAG", "DataFrames and their plan", "nothing"),
    (
        "operator subtasks, stream partitions, parallelism of an operator",
        "tasks of a stage, partitions of a DataFrame",
        "a task ends with its partition; in Flink a subtask lives as long as the job",
    ),
    (
        "one-to-one (forwarding) streams",
        "narrow transformations within a stage",
        "keep partitions and the order within them",
    ),
    ("redistributing streams", "`Exchange` between two stages", "nothing"),
    ("`keyBy()`: by hash of the key", "`Exchange hashpartitioning`", "nothing"),
    (
        "`broadcast()`",
        "`F.broadcast(frame)` in a join: `BroadcastExchange`",
        "for joins only; there is no broadcast state",
    ),
    ("`rebalance()`", "`repartition(n)`: `Exchange RoundRobinPartitioning`", "nothing"),
    (
        "one transformation may be several operators",
        "the same: `groupBy` and `agg` are two aggregates and an exchange",
        "`explain()` shows them",
    ),
    ("cycles by iteration constructs", "none in a plan: see example `iteration`", "a loop in the program"),
    ("joins of streams", "`stream.join(other, condition)` with watermarks", "each side's rows wait in state"),
)


def main(spark: SparkSession) -> None:
    """Print the plans of keyBy, broadcast and rebalance."""
    spark.conf.set("spark.sql.adaptive.enabled", False)
    source = spark.range(1000).select((F.col("id") % 4).alias("key"), (F.col("id") * 2).alias("amount"))
    names = spark.createDataFrame([(1, "one")], "key LONG, name STRING")
    for title, frame in {
        "keyBy": source.groupBy("key").agg(F.sum("amount")),
        "broadcast": source.join(F.broadcast(names), "key"),
        "rebalance": source.repartition(3),
    }.items():
        print(title, *plan.operators(frame), sep="\n  ")


if __name__ == "__main__":
    program.start(main)
