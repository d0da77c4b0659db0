"""A workspace in a folder: ``Volumes/`` and the Delta tables of one schema, after a Spark Connect server.

The lake's schema is in ``spark_catalog``, the one catalog that holds Delta tables here; sessions begin in another.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

from fraudlake.settings import Settings

CATALOG, SCHEMA = "spark_catalog", "fraud"
ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])


def volumes(folder: Path) -> Path:
    """The folder of the volumes."""
    return folder / "Volumes" / CATALOG / SCHEMA


def start(folder: Path) -> Any:
    """Start the server and return the client's session; what a job's wheel task finds is then in place."""
    # A test's own process needs none of them: it takes them a second to load.
    from pyspark.sql import SparkSession

    from fraudlake.lake import session
    from fraudlake.model import store as model_store
    from tests.standin import serverless

    os.environ |= {
        **session.environment(),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "standin" / "worker"), PYTHONPATH]),
        "STANDIN_VOLUMES": str(folder / "Volumes"),
        serverless.CRASH: str(folder / "crash"),
        serverless.ONE_SHOT: str(folder / "one_shot"),
        "DATABRICKS_RUNTIME_VERSION": "client.5",
        "FRAUDLAKE_CHECKPOINTS": str(volumes(folder) / "checkpoints"),
        # Each partition of state is a Python process: few are enough for little data.
        "FRAUDLAKE_BUCKETS": "2",
    }
    settings = Settings(lake=folder)
    local = session.configuration(settings)
    configuration = {
        **{name: local[name] for name in _SERVER},
        **settings.spark_options,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.defaultCatalog": serverless.OTHER_CATALOG,
        f"spark.sql.catalog.{serverless.OTHER_CATALOG}": _JDBC,
        f"spark.sql.catalog.{serverless.OTHER_CATALOG}.url": "jdbc:derby:memory:workspace;create=true",
        f"spark.sql.catalog.{serverless.OTHER_CATALOG}.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        # Databricks knows more properties of a table than Delta's open-source release.
        "spark.databricks.delta.allowArbitraryProperties.enabled": "true",
    }
    builder = SparkSession.builder.remote("local[2]")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    (folder / "derby.log").touch()
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {CATALOG}.{SCHEMA} LOCATION '{folder}/tables'")
    for volume in ("landing", "checkpoints"):
        (volumes(folder) / volume).mkdir(parents=True, exist_ok=True)
    serverless.install()
    # The workspace's MLflow: a separate store.
    store = f"sqlite:///{folder}/mlflow.db"
    model_store.WORKSPACE = model_store.ModelStore(store, store)
    sys.modules["databricks.connect"] = _connect(spark)
    return spark


_JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
_SERVER = (
    "spark.sql.extensions",
    "spark.sql.catalog.spark_catalog",
    "spark.driver.memory",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.ui.enabled",
    "spark.databricks.delta.snapshotPartitions",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.driver.extraJavaOptions",
)
"""What the server is started with: the lake's own session settings are not among it."""


def _connect(spark: Any) -> types.ModuleType:
    """Databricks Connect, as far as the package imports it."""
    module = types.ModuleType("databricks.connect")
    builder = types.SimpleNamespace(getOrCreate=lambda: spark)
    module.DatabricksSession = types.SimpleNamespace(builder=builder)  # type: ignore[attr-defined]
    return module
