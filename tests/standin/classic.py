"""Classic compute: an ordinary session on the workspace's catalog, whose tasks are streams that only it stops."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.standin import auto_loader, workspace

PATIENCE = 200


@contextmanager
def cluster(spark: Any, folder: Path) -> Iterator[Any]:
    """Make this process a cluster with a new session in which the tasks find the volumes of ``workspace.volumes``."""
    checkpoints = workspace.volumes(folder) / "checkpoints"
    checkpoints.mkdir(parents=True)
    auto_loader.install(DataStreamReader, SparkSession)
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.allowArbitraryProperties.enabled", "true")
    session.sql(f"CREATE DATABASE {workspace.CATALOG}.{workspace.SCHEMA} LOCATION '{folder}/tables'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession.Builder, "getOrCreate", lambda builder: session)
        patch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
        patch.setenv("FRAUDLAKE_CHECKPOINTS", str(checkpoints))
        patch.setenv("FRAUDLAKE_BUCKETS", "2")
        yield session
    session.sql(f"DROP DATABASE {workspace.CATALOG}.{workspace.SCHEMA} CASCADE")


def stopped_at(table: Path, rows: int) -> AbstractContextManager[None]:
    """Stop what the block runs at so many rows of a table: see :func:`stopped_when`."""
    return stopped_when(
        lambda: DeltaTable.is_deltatable(str(table)) and DeltaTable(table).to_pyarrow_table().num_rows >= rows
    )


@contextmanager
def stopped_when(is_done: Callable[[], bool]) -> Iterator[None]:
    """Stop what the block runs, as a cluster stops it, when it is done or has taken too long."""
    has_ended = threading.Event()

    def stop() -> None:
        for _ in range(PATIENCE * 5):
            if is_done():
                break
            if has_ended.wait(0.2):
                return
        if not has_ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        yield
    finally:
        has_ended.set()
        stopping.join()
