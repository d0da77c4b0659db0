"""Parallelism: how many tasks each step has, and who decides.

Translates: ``env.set_parallelism(4)`` and ``operator.set_parallelism(8)``.
Flink: each operator has its number of subtasks, which run as long as the job.
Spark: each partition of data is a task; a source, ``repartition`` or a shuffle says how many there are.
Differs: steps without a shuffle have the partitions of their input, and cannot be given a number of their own.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples import program

DOCUMENT = "000"
PHRASES = (
    (
        "`env.setParallelism(n)`, `set_parallelism(4)` of the environment",
        "`spark.sql.shuffle.partitions` after a shuffle; `local[n]` or the cluster's cores for parallel tasks",
        "tasks wait for cores, so there may be more of them than cores",
    ),
    (
        "`set_parallelism(8)` of an operator",
        "`repartition(8)` before it",
        "moves data; a stateful step of a stream always has `spark.sql.shuffle.partitions` tasks",
    ),
    ("`set_parallelism(1)`", "`coalesce(1)`", "does not move data to other partitions first"),
    (
        "changing the parallelism of a job with state",
        "the number of state partitions stays with the checkpoint",
        "start a new checkpoint; on Databricks it may be changed later",
    ),
)


def tasks(frame: DataFrame) -> int:
    """Return the number of partitions that hold rows."""
    return frame.select(F.spark_partition_id()).distinct().count()


def main(spark: SparkSession) -> None:
    """Print the number of tasks along a plan."""
    spark.conf.set("spark.sql.adaptive.enabled", False)  # it would join small partitions, as streams never do
    spark.conf.set("spark.sql.shuffle.partitions", 8)
    source = spark.range(0, 1000, 1, numPartitions=4)
    mapped = source.select((F.col("id") % 100).alias("key"))
    print("source", tasks(source))
    print("map", tasks(mapped))
    print("keyBy", tasks(mapped.groupBy("key").count()))
    print("repartition(3)", tasks(mapped.repartition(3)))
    print("coalesce(1)", tasks(mapped.coalesce(1)))


if __name__ == "__main__":
    program.start(main)
