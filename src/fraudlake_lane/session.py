"""The session of the fast lane: starts Spark 4.3 with only the Kafka source, or uses a workspace's session."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import UsageError
from fraudlake.lake import jars, java, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fraudlake.settings import Settings

_FIRST = (4, 3)
"""The first version of Spark that supports aggregates in Real-time Mode."""
_FIRST_RUNTIME = (17, 3)
"""The first Databricks Runtime whose real-time mode calls processors in Python."""
_RUNTIME = "DATABRICKS_RUNTIME_VERSION"
_REAL_TIME_MODE = "spark.databricks.streaming.realTimeMode.enabled"
_SLOTS = 256
"""Tasks that run in parallel. Each is a thread that mostly waits, so there may be many more tasks than cores."""
STATE_PARTITIONS = 2
_STATE = "spark.sql.streaming.stateStore"
COUNT_ENTRIES = f"{_STATE}.rocksdb.trackTotalNumberOfRows"
"""Spark's setting that makes it count the entries of a state with every row."""


@dataclass(frozen=True)
class Session:
    """A Spark session, its number of parallel tasks, its function to find neighbours, and its log."""

    spark: SparkSession
    slots: int
    neighbours: Callable[[DataFrame, timedelta | None, int], DataFrame]
    log: str


def require_spark() -> None:
    """Check that this Spark's Real-time Mode can evaluate the rules.

    Raises:
        UsageError: it cannot.
    """
    runtime = os.environ.get(_RUNTIME)
    if runtime is not None:
        numbers = re.match(r"(\d+)\.(\d+)", runtime)
        if numbers and tuple(map(int, numbers.groups())) < _FIRST_RUNTIME:
            raise UsageError(f"the fast lane needs Databricks Runtime 17.3 or newer, and this compute has {runtime}")
        return
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = None
    if version is None or tuple(int(part) for part in version.split(".")[:2]) < _FIRST:
        there = f"Spark {version}" if version else "no Spark"
        raise UsageError(
            f"the fast lane needs Spark 4.3, and this environment has {there}: set up its own with 'make realtime', or "
            "pip install 'fraudlake[realtime]'"
        )


def state_partitions(settings: Settings) -> int:
    """Return the number of partitions of the state, which a checkpoint fixes."""
    return settings.shuffle_partitions or STATE_PARTITIONS


@contextmanager
def started(settings: Settings, log: Path) -> Iterator[Session]:
    """Start Spark in this process and end it afterwards; in a workspace, use the compute's session and leave it open.

    The output of the JVM goes to ``log``.

    Raises:
        UsageError: this environment, or this compute, has another Spark.
        FraudlakeError: Java or the jars are missing, or Spark does not start.
    """
    require_spark()
    if _RUNTIME in os.environ:
        yield _compute_session(settings)
        return
    spark = _start(settings, log)
    from fraudlake_lane import neighbours

    try:
        yield Session(spark, _SLOTS, neighbours.by_aggregate, str(log))
    finally:
        spark.stop()


def _compute_session(settings: Settings) -> Session:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from fraudlake_lane import neighbours

    spark = SparkSession.builder.getOrCreate()
    if spark.conf.get(_REAL_TIME_MODE, "false") != "true":
        raise UsageError(f"the fast lane needs {_REAL_TIME_MODE} true in the Spark configuration of the cluster")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", str(state_partitions(settings)))
    # A range has a partition for each task that can run at once.
    slots = spark.range(100_000).select(F.spark_partition_id()).distinct().count()
    return Session(spark, slots, neighbours.by_processor, "the log of this compute")


def _start(settings: Settings, log: Path) -> SparkSession:
    java.require()
    added_jars = sorted(map(str, jars.folder("realtime").glob("*.jar")))
    configuration = {
        "spark.jars": ",".join(added_jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(state_partitions(settings)),
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        # The default renames files through Hadoop's FileContext, which starts a `readlink` process for each.
        "spark.sql.streaming.checkpointFileManagerClass": session.CHECKPOINT_FILES,
        # How long (ms) a row may wait for others before the state; the default of 50 is most of an alert's latency.
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "10",
        # An account's rows are written again with each row. With the defaults of 64 and 8 MB, 5,000 rows a second stop
        # for up to a second every few seconds, while RocksDB merges its files.
        f"{_STATE}.rocksdb.writeBufferSizeMB": "256",
        f"{_STATE}.rocksdb.blockCacheSizeMB": "256",
        "spark.driver.extraJavaOptions": session.java_options(settings, "-Duser.timezone=UTC"),
    }
    return session.launch(f"local[{_SLOTS}]", session.with_options(configuration, settings), log)
