"""Rows older than ``row_retention`` leave their tables, are counted once, and streams continue."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.gold import account_daily
from fraudlake.lake import Lake
from fraudlake.lake.commit import Commit
from fraudlake.lake.spark_store import SparkStore
from fraudlake.lake.writer import Writer
from fraudlake.operations import maintenance, retention
from fraudlake.operations.restore import restore
from fraudlake.operations.status import status
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from tests.conftest import FraudlakeHere

pytestmark = pytest.mark.stream

MARCH_7, MARCH_8 = datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 3, 8, 12, tzinfo=UTC)
FROM_MARCH_8 = f"{(datetime.now(UTC).date() - date(2026, 3, 8)).days}d"
"""The limit that lets the rows of 7 March leave."""
LIMITS = dict.fromkeys(("bronze_transactions", "silver_transactions", "silver_quarantine"), FROM_MARCH_8)


def land(folder: Path, name: str, *rows: tuple[datetime | None, str, float]) -> None:
    """Land a file of rows: time, account, amount."""
    columns = [[row[at] for row in rows] for at in range(3)]
    times = pa.array(columns[0], pa.timestamp("us", "UTC"))
    table = pa.table({"dt": times, "accountId": columns[1], "amount": columns[2], "alert": [False] * len(rows)})
    pq.write_table(table, folder / name)


def take(lake: Any) -> None:
    """Run the steps up to the account days over what is there."""
    for step in (ingest.streams, refine.streams, detect.streams):
        stream.run(lake, step(lake), "available-now")
    stream.run(lake, aggregate.streams(lake)[:1], "available-now")


@pytest.fixture(scope="module")
def two_days(module_lake: Any) -> Path:
    """A lake with an alert and an invalid row on each of two days, and an invalid row without a time."""
    landing = module_lake.root / "landing"
    land(landing, "part-a-0", (MARCH_7, "1", 0.5), (MARCH_7 + timedelta(seconds=1), "1", 600.0), (MARCH_7, "2", -1.0))
    land(landing, "part-a-1", (MARCH_8, "1", 0.5), (MARCH_8 + timedelta(seconds=1), "1", 600.0), (MARCH_8, "2", -1.0))
    land(landing, "part-a-2", (None, "3", 5.0))
    take(module_lake)
    return Path(module_lake.root)


@pytest.fixture
def filled(two_days: Path, lake: Callable[..., Any], landing: Path) -> Any:
    """A copy of the lake with two days, of which the first is older than the limits."""
    shutil.copytree(two_days, landing.parent, dirs_exist_ok=True)
    return lake(row_retention=LIMITS, max_idle=FROM_MARCH_8)


def days(lake: Any, table: tables.Table, time: str = "date") -> list[str]:
    return sorted(
        str(day)
        for day in lake.store.query(f"SELECT CAST({time} AS DATE) AS day FROM {table.name}", table)["day"].to_pylist()
    )


def alerts(lake: Any) -> list[str]:
    return sorted(f"{row['timestamp']:%F %T}" for row in lake.store.rows(tables.SILVER_ALERTS).to_pylist())


def account_days(lake: Any) -> list[tuple[str, str, int, int]]:
    rows = lake.store.query(
        f"SELECT account_id, date, transactions, alerts FROM {account_daily.TABLE.name}", account_daily.TABLE
    ).to_pylist()
    return sorted((row["account_id"], str(row["date"]), row["transactions"], row["alerts"]) for row in rows)


def noted(lake: Any) -> list[tuple[str, int]]:
    return sorted((row["table_name"], row["rows"]) for row in lake.store.rows(tables.GOLD_ROW_REMOVALS).to_pylist())


def test_old_rows_leave_and_are_counted_and_the_layers_still_add_up(filled: Any) -> None:
    histories: dict[str, list[Commit]] = {}
    shortened = {"bronze_transactions": 3, "silver_transactions": 2, "silver_quarantine": 1}
    assert retention.remove_old_rows(filled, histories) == shortened
    assert not shortened.keys() & histories.keys()  # they are outdated
    assert histories["silver_alerts"] == filled.store.history(tables.SILVER_ALERTS)
    assert days(filled, tables.BRONZE_TRANSACTIONS) == ["2026-03-08"] * 3 + ["None"]
    assert days(filled, tables.SILVER_TRANSACTIONS) == ["2026-03-08"] * 2
    assert days(filled, tables.SILVER_QUARANTINE, "dt") == ["2026-03-08", "None"]
    figures = status(filled)
    assert figures.gaps == []
    assert (figures.source.landed, figures.rows.bronze, figures.rows.silver, figures.rows.quarantine) == (7, 4, 2, 2)
    assert figures.rows.removed == shortened

    assert retention.remove_old_rows(filled) == {}
    assert status(filled).rows.removed == figures.rows.removed


@pytest.mark.long
def test_streams_go_on_and_a_day_whose_rows_left_is_not_computed_again(filled: Any, landing: Path) -> None:
    before = account_days(filled)
    assert before == [("1", "2026-03-07", 2, 1), ("1", "2026-03-08", 2, 1)]
    retention.remove_old_rows(filled)
    maintenance.optimize(filled)
    assert maintenance.vacuum(filled).skipped == {}

    later = MARCH_8 + timedelta(hours=1)
    late = MARCH_7 + timedelta(hours=1)
    land(landing, "part-a-3", (late, "1", 20.0), (later, "4", 0.5), (later + timedelta(seconds=1), "4", 600.0))
    take(filled)
    assert alerts(filled) == ["2026-03-07 12:00:01", "2026-03-08 12:00:01", "2026-03-08 13:00:01"]
    assert account_days(filled) == [*before, ("4", "2026-03-08", 2, 1)]
    assert status(filled).gaps == []

    assert retention.remove_old_rows(filled) == {"bronze_transactions": 1, "silver_transactions": 1}
    assert status(filled).gaps == []
    assert status(filled).rows.removed == {"bronze_transactions": 4, "silver_transactions": 3, "silver_quarantine": 1}


@pytest.mark.usefixtures("each_writer")
def test_a_removal_that_was_cut_before_it_was_noted_is_counted_and_noted_once(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = type(filled).writer

    def killed(self: Lake, table: tables.Table) -> Writer:
        if table is tables.GOLD_ROW_REMOVALS:
            raise OSError("killed")
        return writer(self, table)

    with monkeypatch.context() as patched:
        patched.setattr(type(filled), "writer", killed)
        with pytest.raises(OSError, match="killed"):
            retention.remove_old_rows(filled)
    assert noted(filled) == []
    assert status(filled).gaps == []
    retention.remove_old_rows(filled)
    retention.remove_old_rows(filled)
    assert noted(filled) == [("bronze_transactions", 3), ("silver_quarantine", 1), ("silver_transactions", 2)]
    assert status(filled).gaps == []


@pytest.mark.long
def test_a_restore_brings_rows_back_and_they_do_not_count_as_removed(filled: Any) -> None:
    version = filled.store.version(tables.SILVER_TRANSACTIONS)
    retention.remove_old_rows(filled)
    assert restore(filled, "silver_transactions", version, allow_streams=True).rows_after == 4
    assert status(filled).rows.removed == {"bronze_transactions": 3, "silver_quarantine": 1}
    assert status(filled).gaps == []

    assert retention.remove_old_rows(filled) == {"silver_transactions": 2}
    assert status(filled).gaps == []
    take(filled)
    assert len(alerts(filled)) == 2


@pytest.mark.long
def test_late_rows_that_leave_quarantine_are_set_against_nothing(filled: Any) -> None:
    filled.spark.sql(
        "INSERT INTO silver_quarantine SELECT * EXCEPT (date), array('late'), current_timestamp() "
        "FROM bronze_transactions WHERE amount = 600"
    )
    assert (status(filled).rows.late, status(filled).gaps) == (2, [])
    assert retention.remove_old_rows(filled)["silver_quarantine"] == 2
    assert (status(filled).rows.late, status(filled).rows.removed_late, status(filled).gaps) == (1, 1, [])


@pytest.mark.long
def test_old_rows_of_every_table_that_may_have_a_limit_are_found_by_both_engines(lake: Callable[..., Any]) -> None:
    opened = lake()
    for name in retention._OLD:
        table = next(table for table in retention.contents.TABLES if table.name == name)
        condition = retention.old_rows(table, date(2026, 3, 8))
        assert opened.store.count(table, condition) == 0
        assert SparkStore(opened).count(table, condition) == 0


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ('{"silver_transaction": "400d"}', "silver_transaction: no such table; the nearest one that can have a limit"),
        ('{"bronze_files": "400d"}', "bronze_files: its rows are not of a day; the nearest one that can have a limit"),
        ('{"silver_alerts": "3 hours"}', "'3 hours': input should be greater than or equal to 1 day"),
        ("400d", "must be JSON such as"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, fraudlake_here: FraudlakeHere, limits: str, line: str) -> None:
    done = fraudlake_here("--lake", str(tmp_path / "none"), "optimize", "--row-retention", limits)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "none").exists()
