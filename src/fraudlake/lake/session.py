"""The local Spark session: delta-spark on this machine's cores, with its output in a log file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import java, spark_home
from fraudlake.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMON_CONFIGURATION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    # Spark checks any other limit row by row, which takes as long as writing the row (seen in Spark 4.2).
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""Spark configuration of every session, local or in a workspace."""

JAVA_OPTIONS = (
    # A micro-batch's rows are few, large arrays: the parallel collector takes a seventh of G1's time for them.
    "-XX:+UseParallelGC",
    # Without it, Java 17 and later log a line when Arrow accesses the internals of java.nio.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "-Duser.timezone=UTC",
)
"""Java's options."""

_STREAMING = "org.apache.spark.sql.execution.streaming"
_ROCKSDB = f"{_STREAMING}.state.RocksDBStateStoreProvider"
CHECKPOINT_FILES = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's class that writes and renames the files of checkpoints."""


def start(settings: Settings, log: Path) -> SparkSession:
    """Return this process's Spark session, starting Spark on first use; what the JVM prints goes to ``log``.

    Raises:
        UsageError: pyspark is not installed.
        FraudlakeError: Java or the jars are missing, or Spark does not start.
    """
    java.require()
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise UsageError("Spark is not installed: pip install 'fraudlake[local]'") from None
    os.environ |= environment()
    return launch("local[*]", configuration(settings), log)


def launch(master: str, configuration: Mapping[str, str], log: Path) -> SparkSession:
    """Start Spark in this process, or return the session that it has; what the JVM prints goes to ``log``.

    Raises:
        FraudlakeError: Spark does not start.
    """
    from pyspark import accumulators
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Once the JVM has ended, the server of PySpark's accumulators prints a stack trace (seen in PySpark 4.2).
    accumulators.AccumulatorTCPServer.handle_error = _ignore  # type: ignore[assignment, method-assign]
    accumulators.AccumulatorUnixServer.handle_error = _ignore  # type: ignore[assignment, method-assign]
    builder = SparkSession.builder.appName("fraudlake").master(master)
    for name, value in configuration.items():
        builder = builder.config(name, value)
    try:
        with _output_to(log):
            return builder.getOrCreate()
    except PySparkException as error:
        raise FraudlakeError(f"Spark did not start ({first_line(error)}): see {log}") from error


def environment() -> dict[str, str]:
    """Return the environment variables that a local Spark is started with."""
    return {
        "SPARK_HOME": str(spark_home.folder()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Python workers start `python3` from the PATH otherwise, which may lack this environment's packages.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _ignore(*_: object) -> None:
    pass


def configuration(settings: Settings) -> dict[str, str]:
    """Return the Spark configuration of a local session."""
    partitions = str(settings.shuffle_partitions or min(os.cpu_count() or 2, 8))
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta's own store looks whether a commit is there, then renames: another process's commit in between is lost.
        "spark.delta.logStore.file.impl": "fraudlake.HardLinkLogStore",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What a UI would show of past work, by default of a thousand queries with their plans, fills the heap.
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "10",
        # Spark renders each query's plan for its UI, even where the UI is off; the short form takes less time.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.warehouse.dir": str(settings.lake.absolute() / "tables"),
        **COMMON_CONFIGURATION,
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A micro-batch needs some dozen classes of generated code. With the default of 100 the streams of a process
        # evict each other's classes, and every micro-batch compiles its own again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # Rows are persisted only briefly: choosing a compression takes longer than computing them.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # A micro-batch has few dates: with one open file for each, its rows need no sort by partition.
        "spark.sql.maxConcurrentOutputFileWriters": "64",
        # Delta reads a table's log before each commit, by default in 50 tasks, too many for tables of this size.
        "spark.databricks.delta.snapshotPartitions": "1",
        # Otherwise auto compaction merges the small files that optimize made for data skipping.
        "spark.databricks.delta.autoCompact.maxFileSize": str(settings.target_file_bytes),
        # VACUUM lists a table's folder in this many tasks; the default of 10,000 takes half a minute on few cores.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
        # The default renames files through Hadoop's class FileContext. Without Hadoop's native library, that starts a
        # `readlink` process for every file, some dozens a micro-batch.
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.driver.extraJavaOptions": " ".join([*JAVA_OPTIONS, *spark_home.java_options()]),
    }


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Make ``log`` the output of a process that starts in the block, the JVM: VACUUM prints on standard output."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("ab") as file:
            for number in saved:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, duplicate in saved.items():
            os.dup2(duplicate, number)
            os.close(duplicate)
