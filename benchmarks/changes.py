"""New rules, features and verdicts in a lake of many rows and accounts: time and memory of the next micro-batch.

    python -m benchmarks.changes --rows 10000000 --accounts 1000000 --verdicts 1000000 --work DIR [--cluster]

Rows over 40 days, of accounts at 20,000 terminals, go to silver_transactions of a lake in DIR/base, which is used again
if it is there; `detect` and `score` read them in local mode. Then a copy of it has 1,000 rows more for each command:
once as it is, and once with a change. With --cluster, these commands run on a standalone cluster of this machine with
two executors of one core. Memory is the peak of the command with its Java, and of the executors with their Python
processes; in local mode the tasks run in the command's Java.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.usage import Usage, family, measured
from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from tests.integration import cluster

BEGIN, DAYS, TERMINALS, MORE = datetime(2026, 1, 1, tzinfo=UTC), 40, 20_000, 1000
COLUMNS, ENTITIES = {"terminal_id": "string"}, {"terminal": "terminal_id"}
OPTIONS = {"FRAUDLAKE_DRIVER_MEMORY": "6g", "FRAUDLAKE_MAX_TRAINING_ROWS": "200000"}
EXECUTORS = '{"spark.executor.memory": "2g"}'
FEATURES = [
    f'[[features]]\nname = "{by}_frauds"\naggregate = "fraud_count"\nentity = "{by}"\nwindow = "30 days"\n'
    for by in ("account", "terminal")
]
RULES = [
    ("count_by_account", 'aggregate = "count"\nabove = 40'),
    ("count_by_terminal", 'entity = "terminal"\naggregate = "count"\nabove = 900'),
    ("sum_by_account", 'aggregate = "sum"\ncolumn = "amount"\nabove = 9000'),
]


class Run:
    """A lake, and how its commands run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.work, self.lake, self.accounts, self.rows = options.work, options.work / "base", options.accounts, 0
        self.environment: dict[str, str] = {}

    def add(self, rows: int) -> None:
        """Append rows to silver, after those that are there."""
        settings = Settings(lake=self.lake, columns=COLUMNS, entities=ENTITIES)
        lake = open_lake(settings)
        table = lake.table(tables.SILVER_TRANSACTIONS)
        draw, begin = np.random.default_rng(self.rows), BEGIN + timedelta(days=DAYS if self.rows else 0)
        span = timedelta(minutes=15) if self.rows else timedelta(days=DAYS)
        at = np.sort(draw.integers(0, span // timedelta(microseconds=1), rows)) + int(begin.timestamp() * 1e6)
        for part in np.array_split(np.arange(rows), max(1, rows // 1_000_000)):
            numbers, fraud = part + self.rows, draw.random(len(part)) < 0.005
            columns: dict[str, Any] = {
                "transaction_id": pa.array(numbers).cast(pa.string()),
                "account_id": pa.array(draw.integers(0, self.accounts, len(part))).cast(pa.string()),
                "timestamp": pa.array(at[part]).cast(pa.timestamp("us", tz="UTC")),
                "amount": np.round(draw.lognormal(3, 1, len(part)) * np.where(fraud, 5, 1), 2),
                "label": fraud,
                "source": ["part-0"] * len(part),
                "position": numbers,
                "date": pa.array(at[part]).cast(pa.timestamp("us", tz="UTC")).cast(pa.date32()),
                "terminal_id": pa.array(draw.integers(0, TERMINALS, len(part))).cast(pa.string()),
            }
            found = [columns.get(name, pa.nulls(len(part))) for name in table.column_names]
            lake.writer(table).write(pa.table(found, table.column_names).cast(table.schema), "append")
        self.rows += rows

    def verdicts(self, first: int, number: int, decided: timedelta, is_fraud: bool) -> Path:
        """Write verdicts on each third row, from one on, as a file."""
        numbers = pa.array(first + 3 * np.arange(number)).cast(pa.string())
        at = [BEGIN + timedelta(days=DAYS) + decided] * number
        file = self.work / f"{first}-{is_fraud}.parquet"
        given = {"transaction_id": numbers, "verdict": [is_fraud] * number, "decided_at": at}
        pq.write_table(pa.table({**given, "analyst": ["benchmark"] * number}), file)
        return file

    def command(self, *parameters: str) -> None:
        """Run a command to its end."""
        program = [sys.executable, "-m", "fraudlake_cli", "--lake", str(self.lake), *parameters]
        with (self.work / "output").open("a") as output:
            subprocess.run(
                program, check=True, env={**os.environ, **OPTIONS, **self.environment}, stdout=output, stderr=output
            )

    def measure(self, what: str, *parameters: str) -> None:
        """Run a command, and print what it used."""
        with peaks() as peak, measured() as used:
            self.command(*parameters)
        print(figures(what, used, peak), flush=True)


@contextlib.contextmanager
def peaks() -> Iterator[dict[str, int]]:
    """Yield the peaks of memory, bytes, of the command and of the executors, complete when the block ends."""
    peak, done = {"command": 0, "executors": 0}, threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            now = dict.fromkeys(peak, 0)
            for process in family()[1:]:
                with contextlib.suppress(psutil.Error):
                    role = role_of(process)
                    if role:
                        now[role] += process.memory_full_info().uss
            peak.update({role: max(peak[role], now[role]) for role in peak})

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def role_of(process: psutil.Process) -> str | None:
    """Return whether a process is of the command or of the executors; None: of the cluster's own."""
    line = " ".join(process.cmdline())
    if "spark.deploy.master" in line or "spark.deploy.worker" in line:
        return None
    return "executors" if "CoarseGrainedExecutorBackend" in line or "pyspark.daemon" in line else "command"


def figures(what: str, used: Usage, peak: dict[str, int]) -> str:
    memory = " | ".join(f"{peak[role] / 1e6:,.0f}" for role in ("command", "executors"))
    return f"| {what} | {used.wall:.1f} | {used.processor:.1f} | {memory} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--accounts", type=int, default=1_000_000)
    parser.add_argument("--verdicts", type=int, default=1_000_000)
    parser.add_argument("--cluster", action="store_true", help="measure on a cluster instead of local mode")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    run = Run(options)
    begin(run, options.rows)
    started = cluster.running(options.work, workers=2, cores=1) if options.cluster else contextlib.nullcontext(None)
    with started as on:
        if on is not None:
            run.environment |= {"FRAUDLAKE_SPARK_MASTER": on.master, "FRAUDLAKE_SPARK_OPTIONS": EXECUTORS}
        changes(run, options.verdicts)


def begin(run: Run, rows: int) -> None:
    """Make the lake and its copy."""
    base, run.lake = run.lake, run.work / "draft"
    if not base.exists():
        run.work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(run.lake, ignore_errors=True)
        run.add(rows)
        for step in ("detect", "train", "score"):
            run.measure(f"`{step}`, {rows:,} rows", step)
        run.lake.rename(base)
    run.rows, run.lake = rows, run.work / "lake"
    shutil.rmtree(run.lake, ignore_errors=True)
    shutil.copytree(base, run.lake)


def changes(run: Run, verdicts: int) -> None:
    """Measure each change of a lake that has its rows."""

    def next_rows(step: str, what: str) -> None:
        run.add(MORE)
        run.measure(f"`{step}`, {what}", step)

    next_rows("detect", "no change")
    for name, text in RULES:
        file = run.work / f"{name}.toml"
        file.write_text(f'[[rules]]\nname = "{name}"\nkind = "threshold"\nwindow = "30 days"\n{text}\n')
        run.command("rules", "add", str(file))
        run.command("rules", "promote", name)
    next_rows("detect", "three new rules over 30 days")
    next_rows("detect", "these rules, no change")
    next_rows("score", "no change")
    file = run.work / "features.toml"
    file.write_text("\n".join(FEATURES))
    run.command("features", "apply", str(file), "--yes")
    next_rows("score", "a new feature by each of two entities")
    next_rows("score", "these features, no change")
    later = timedelta(days=1)
    for what, file in (
        (f"{verdicts:,} new verdicts", run.verdicts(0, verdicts, timedelta(0), is_fraud=True)),
        ("1,000 more verdicts", run.verdicts(1, 1000, timedelta(0), is_fraud=True)),
        ("1,000 corrections", run.verdicts(0, 1000, later, is_fraud=False)),
    ):
        run.measure(f"`verdicts`, {what}", "verdicts", str(file))
        next_rows("score", what)
    next_rows("score", "these verdicts, no change")


if __name__ == "__main__":
    main()
