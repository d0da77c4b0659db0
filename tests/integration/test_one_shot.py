"""Compute that counts no rows of a micro-batch, and gives them to one action only: both were seen on serverless."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.standin import workspace
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAM = """
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake.streams import {step}, stream
folder = {folder!r}
spark.sql(f"CREATE DATABASE IF NOT EXISTS {catalog}.once LOCATION '{{folder}}/tables'")
lake = open_lake(
    Settings(
        catalog={catalog!r}, schema="once", landing=f"{{folder}}/landing", checkpoints=f"{{folder}}/checkpoints",
        ordering="event_time", buckets=2,
    ),
    spark,
)
streams = [one for one in {step}.streams(lake) if one.step == {stream!r}]
print([done.rows for done in stream.run(lake, streams, "available-now")][0])
"""


def land(folder: Path, name: str, *transactions: tuple[str, int, float]) -> None:
    """Land rows of account, second of 7 March 2026 and amount."""
    accounts, seconds, amounts = zip(*transactions, strict=True)
    times = [datetime(2026, 3, 7, 0, second // 60, second % 60) for second in seconds]
    columns = {"dt": times, "accountId": accounts, "amount": amounts, "alert": [False] * len(times)}
    pq.write_table(pa.table(columns), folder / name)


class Steps:
    """Runs streams in a schema of the test's own."""

    def __init__(self, compute: Workspace, name: str) -> None:
        self._compute, self.folder = compute, workspace.volumes(compute.folder).with_name(name)
        self.one_shot = compute.folder / "one_shot"
        for folder in ("landing", "checkpoints"):
            (self.folder / folder).mkdir(parents=True)

    def run(self, step: str, stream: str | None = None) -> int | str:
        """Run a stream of a step; return the rows that it reports, or its error."""
        given = {"folder": str(self.folder), "catalog": CATALOG, "step": step, "stream": stream or step}
        ended = self._compute.task("-c", PROGRAM.format(**given))
        return str(ended["error"]) if ended["code"] else int(ended["out"].splitlines()[-1])


@pytest.fixture
def steps(compute: Workspace, tmp_path: Path) -> Iterator[Steps]:
    taken = Steps(compute, tmp_path.name)
    yield taken
    taken.one_shot.unlink(missing_ok=True)


def test_rows_are_counted_from_commits_and_none_is_lost_without_an_error(steps: Steps) -> None:
    landing, tables = steps.folder / "landing", steps.folder / "tables"
    land(landing, "part-0", ("a", 1, 0.5), ("a", 2, 900.0), ("b", 3, 7.0), ("b", 4, -1.0), ("b", 40, 2.0))

    assert [steps.run(step) for step in ("ingest", "refine", "detect")] == [1, 5, 4]
    assert steps.run("aggregate", "account_daily") == 5

    # The first row is too late for the detector, whose output then goes to two tables.
    land(landing, "part-1", ("c", 5, 3.0), ("c", 50, 0.5), ("c", 51, 800.0), ("c", 90, 1.0))
    steps.one_shot.touch()
    assert steps.run("ingest") == 1
    refused = [str(steps.run("refine")) for _ in range(2)]
    steps.one_shot.unlink()
    assert steps.run("refine") == 4
    steps.one_shot.touch()
    refused += [str(steps.run("detect")), str(steps.run("aggregate", "account_daily"))]
    steps.one_shot.unlink()

    assert [line.partition(" failed: the micro-batch had ")[0] for line in refused] == [
        "refine",
        "refine",
        "detect",
        "account_daily",
    ]
    assert all("rows when it was first read, and 0 when it was read again" in line for line in refused)
    assert not any("\n" in line for line in refused)
    assert steps.run("detect") == 4
    assert steps.run("aggregate", "account_daily") == 5

    assert stored(tables / "bronze_transactions").num_rows == 9
    assert stored(tables / "silver_transactions").num_rows == 8
    reasons = stored(tables / "silver_quarantine")["reasons"].to_pylist()
    assert sorted(reasons) == [["amount_is_positive"], ["late"]]
    assert sorted(stored(tables / "silver_alerts")["account_id"].to_pylist()) == ["a", "c"]
    days = stored(tables / "gold_account_daily").to_pylist()
    assert {row["account_id"]: row["transactions"] for row in days} == {"a": 2, "b": 2, "c": 4}
