"""The session: it holds a program's properties and makes its streams; nothing runs until it is started.

Translates: ``StreamExecutionEnvironment`` and ``env.execute("Fraud Detection")``.
Flink: one environment per job; calls on it build a graph, and ``execute`` submits the whole graph as one job.
Spark: one session per program; calls on it build plans, and each action or started query runs a separate plan.
Differs: a session runs many queries; ``start()`` returns at once, and ``awaitTermination()`` waits as ``execute`` does.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples import console, feed, program

DOCUMENT = "000"
PHRASES = (
    (
        "`StreamExecutionEnvironment.getExecutionEnvironment()`, `get_execution_environment()`",
        "`SparkSession.builder.getOrCreate()`",
        "one session serves many queries, streams and batches",
    ),
    (
        '`env.execute("Fraud Detection")`, `env.execute()`, the job\'s name',
        '`writeStream.queryName("fraud_detection").start()`, then `awaitTermination()`',
        "each query is started by itself; there is no job that holds several",
    ),
    ("a program is lazy: it only builds the graph", "the same: plans run when started", "nothing"),
    ("local mini cluster", '`master("local[*]")`', "nothing"),
    (
        "job submission to a cluster",
        "`spark-submit`; a lake's commands: `databricks bundle run`, or the setting `spark_master`",
        "see [deploy.md](../how-to/deploy.md), [machines.md](../how-to/machines.md#a-standalone-cluster)",
    ),
    (
        "Maven archetype, `flink-streaming-java`, `flink-walkthrough-common`, the IDE's classpath",
        "`pip install 'fraudlake[local]'`",
        "a Python package holds program and dependencies; jars are fetched once by `fraudlake setup`",
    ),
    ("`pip install apache-flink` (PyFlink)", "`pip install pyspark`", "nothing"),
    ("Java 11, 17 or 21; Python 3.9 to 3.12", "Java 17 or 21; Python 3.11 or newer", "nothing"),
    ("`env.add_jars(...)`, connector jars in the build file", "`spark.jars`", "set before the session starts"),
    (
        "DataStream API: each record is processed when it arrives",
        "Structured Streaming: micro-batches, as short as the work allows (from about a second on)",
        "for milliseconds: Real-time Mode, which in Spark 4.2 takes stateless queries only",
    ),
    (
        "checkpointing and state backend, set on the environment",
        "`checkpointLocation` of each query; `spark.sql.streaming.stateStore.providerClass`",
        "nothing",
    ),
    ("properties of a job", '`spark.conf.set("spark.sql....", ...)`', "set before the query starts"),
)


def main(spark: SparkSession, folder: Path) -> None:
    """Make a plan that would fail, which nobody notices, and run another one under a name."""
    transactions = feed.stream(spark, folder / "input", [feed.TRANSACTIONS], feed.TRANSACTION)
    transactions.where(F.raise_error("this ran").isNull())
    print("planned, not run")

    query = transactions.writeStream.format("noop").queryName("fraud_detection").trigger(availableNow=True)
    running = query.option("checkpointLocation", str(folder / "checkpoint")).start()
    running.awaitTermination()
    print(f"{running.name} ran over {sum(progress['numInputRows'] for progress in running.recentProgress)} rows")
    console.print_rows(spark.createDataFrame([(spark.conf.get("spark.master"),)], "master STRING"))


if __name__ == "__main__":
    program.start(main)
