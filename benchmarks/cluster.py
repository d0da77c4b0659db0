"""The main job on a standalone Spark cluster on this machine, compared with local mode. Run by hand.

    python -m benchmarks.cluster --rows 1000000 --work DIR

The cluster has a master and two workers of one core, local mode two threads. Each has a lake of its own with the same
rows, and each step is a process of its own, in local mode right before the cluster. The cluster's lake is in a folder
that all of its processes see, since delta-rs commits what their tasks have computed. Both must have the same alerts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.usage import Usage, measured
from benchmarks.whole_job import ACCOUNTS, SPAN, STEPS
from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake_tools import simulator
from tests.integration import cluster

EXECUTORS = '{"spark.executor.memory": "1500m"}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--increments", type=int, default=2, help="of 1,000 rows on top")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    options.work.mkdir(parents=True)
    with cluster.running(options.work, workers=2, cores=1) as started:
        masters = {"local": "local[2]", "cluster": started.master}
        lakes = {name: options.work / name for name in masters}
        for number in range(options.increments + 1):
            rows = 1000 if number else options.rows
            span = timedelta(minutes=15) if number else SPAN
            start = datetime(2026, 1, 1, tzinfo=UTC) + (SPAN + (number - 1) * span if number else timedelta(0))
            traffic = simulator.Traffic(seed=number, accounts=ACCOUNTS, start=start, rate=rows / span.total_seconds())
            for lake in lakes.values():
                simulator.simulate(lake / "landing" / str(number), traffic, rows=rows, file_rows=100_000)
            for step in STEPS:
                if step != "train" or not number:
                    usages = {name: usage(master, lakes[name], step) for name, master in masters.items()}
                    print(f"{rows:,} rows, {step}:", *(figures(*item) for item in usages.items()), flush=True)
            here, there = (alerts(lake) for lake in lakes.values())
            print(f"{len(here):,} and {len(there):,} alerts, {len(here ^ there):,} in one lake only", flush=True)


def usage(master: str, lake: Path, step: str) -> Usage:
    """Run a step to its end; the cluster's processes count, too."""
    environment = {**os.environ, "FRAUDLAKE_SPARK_MASTER": master, "FRAUDLAKE_SPARK_OPTIONS": EXECUTORS}
    command = [sys.executable, "-m", "fraudlake_cli", "--lake", str(lake), step]
    with (lake / "output").open("a") as output, measured() as used:
        subprocess.run(command, check=True, env=environment, stdout=output, stderr=output)
    return used


def alerts(lake: Path) -> set[str]:
    """Return the ids of a lake's alerts."""
    ids = open_lake(Settings(lake=lake), must_exist=True).store.query(
        f"SELECT alert_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    )
    return set(ids["alert_id"].to_pylist())


def figures(name: str, used: Usage) -> str:
    return f"{name} {used.wall:.1f} s, processor {used.processor:.1f} s;"


if __name__ == "__main__":
    main()
