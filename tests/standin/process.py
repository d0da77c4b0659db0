"""Controls the process of a workspace from a test: sends it commands, and returns their results."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.dataset import ParquetReadOptions

from tests.standin import workspace


def stored(table: Path) -> pa.Table:
    """Read a Delta table; Spark writes timestamps in a form that Arrow otherwise takes for nanoseconds."""
    options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    return DeltaTable(table).to_pyarrow_dataset(parquet_read_options=options).to_table()


class Workspace:
    """A workspace in a folder, whose tasks run in a process of their own."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder, self.pid, self._process = folder, process.pid, process
        self.landing = workspace.volumes(folder) / "landing"
        self.session = self._answer()["session"]

    def task(self, *parameters: str) -> dict[str, Any]:
        """Run a task; return its exit code, its message, what it printed and the seconds that it took."""
        print(json.dumps(parameters), file=self._process.stdin, flush=True)
        return self._answer()

    def task_until_done(self, *parameters: str, first: int = 1) -> int:
        """Run a task, ended after its first commit, the next run after its second one, and so on, until a run makes
        fewer; return how often it was ended.
        """
        crash = self.folder / "crash"
        for commits in itertools.count(first):
            crash.write_text(str(commits))
            ended = self.task(*parameters)
            if crash.exists():
                break
            assert "ended behind a commit" in ended["error"], ended
        crash.unlink()
        assert ended["code"] == 0, ended
        return commits - first

    def rows(self, table: str) -> pa.Table:
        """Return what a table of the lake's schema holds."""
        return stored(self.folder / "tables" / table)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the workspace's process has ended: {(self.folder / 'log').read_text()[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[Workspace]:
    """Start a workspace in a folder."""
    program = [sys.executable, "-m", "tests.standin.tasks", str(folder)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            program,
            cwd=folder,
            # Its server takes any free port.
            env={
                **os.environ,
                "PYTHONPATH": workspace.PYTHONPATH,
                "SPARK_TESTING": "yes",
                **environment,
            },
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            yield Workspace(folder, process)
        finally:
            process.kill()
