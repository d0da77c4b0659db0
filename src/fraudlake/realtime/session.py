"""The session of the fast lane: Spark 4.3 with the Kafka source and nothing else, in an environment of its own."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import UsageError
from fraudlake.lake import jars, java, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fraudlake.settings import Settings

_FIRST = (4, 3)
"""The first Spark that aggregates in Real-time Mode."""
SLOTS = 256
"""Tasks that run at once. Each is a thread that waits most of the time, so there may be many more than cores."""
STATE_PARTITIONS = 2
_STATE = "spark.sql.streaming.stateStore"


def require_spark() -> None:
    """Check that this environment has a Spark whose Real-time Mode aggregates.

    Raises:
        UsageError: it has none.
    """
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
    """Return the number of partitions of the state, which is fixed for the life of a checkpoint."""
    return settings.shuffle_partitions or STATE_PARTITIONS


def start(settings: Settings, log: Path) -> SparkSession:
    """Start Spark in this process; what the JVM prints goes to ``log``.

    Raises:
        UsageError: this environment has another Spark.
        FraudlakeError: Java or the jars are missing, or Spark does not start.
    """
    require_spark()
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
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    return session.launch(f"local[{SLOTS}]", configuration, log)
