"""Runs the tasks of a continuous job in turn, on classic compute: an ordinary session, endless streams.

usage: python -m tests.standin.classic FOLDER PLAN

FOLDER has the volumes of ``workspace.volumes``. PLAN is a JSON list of [table, rows, [parameter, …]]: a
task is stopped, as a cluster stops it, when its table has this number of rows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from fraudlake import cli
from fraudlake.lake import session
from fraudlake.settings import Settings
from tests.standin import auto_loader, workspace

PATIENCE = 200


def start(folder: Path) -> None:
    """Start the cluster's session, which the tasks then find."""
    os.environ |= {
        "DATABRICKS_RUNTIME_VERSION": "17.3",
        "FRAUDLAKE_CHECKPOINTS": str(workspace.volumes(folder) / "checkpoints"),
        "FRAUDLAKE_BUCKETS": "2",
    }
    auto_loader.install(DataStreamReader, SparkSession)
    spark = session.start(Settings(lake=folder), folder / "spark.log")
    spark.conf.set("spark.databricks.delta.allowArbitraryProperties.enabled", "true")
    spark.sql(f"CREATE DATABASE {workspace.CATALOG}.{workspace.SCHEMA} LOCATION '{folder}/tables'")


def stop_at(table: Path, rows: int) -> None:
    """Ask this process to stop when the table holds so many rows, or when it has taken too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if DeltaTable.is_deltatable(str(table)) and DeltaTable(table).to_pyarrow_table().num_rows >= rows:
            break
        time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    plan = json.loads(sys.argv[2])
    start(folder)
    for table, rows, parameters in plan:
        threading.Thread(target=stop_at, args=(folder / "tables" / table, rows), daemon=True).start()
        sys.argv = ["fraudlake", *parameters]
        cli.main()


if __name__ == "__main__":
    main()
