from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from filelock import FileLock

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.operations.restore import restore
from fraudlake.operations.status import status
from fraudlake.streams import detect, stream
from tests.conftest import FraudlakeHere
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream


def pair(account: str, position: int) -> list[Row]:
    """A transaction that is small, and one that is large a second later."""
    start = MARCH_7 + position * SECOND
    return [Row(account, start, 0.5, position=position), Row(account, start + SECOND, 600.0, position=position + 1)]


def positions(lake: Any, version: int | None = None) -> list[int]:
    silver = tables.SILVER_TRANSACTIONS
    rows = lake.read(silver) if version is None else lake.read_version(silver, version)
    return sorted(row["position"] for row in rows.select("position").collect())


def alerted(lake: Any) -> list[str]:
    return sorted(row["transaction_id"] for row in lake.store.rows(tables.SILVER_ALERTS).to_pylist())


def delete(lake: Any, condition: str) -> None:
    lake.session.sql(f"DELETE FROM {lake.name_of(tables.SILVER_TRANSACTIONS)} WHERE {condition}")


def test_a_restored_table_has_the_rows_of_the_version_and_the_present_one_stays_readable(lake: Any) -> None:
    opened = lake()
    land(opened, pair("1", 0))
    wanted = opened.store.version(tables.SILVER_TRANSACTIONS)
    land(opened, pair("2", 2))
    present = opened.store.version(tables.SILVER_TRANSACTIONS)
    done = restore(opened, "silver_transactions", wanted)
    # If the table is compacted automatically, another version follows.
    assert (done.version_before, done.version_after) == (present, opened.store.version(tables.SILVER_TRANSACTIONS))
    assert (done.rows_before, done.rows_after) == (4, 2)
    assert positions(opened) == [0, 1]
    assert positions(opened, done.version_before) == [0, 1, 2, 3]
    before = (
        opened.store.identity(tables.SILVER_TRANSACTIONS),
        opened.store.detail(tables.SILVER_TRANSACTIONS).properties,
    )
    assert restore(opened, "silver_transactions", present).rows_after == 4
    assert positions(opened) == [0, 1, 2, 3]
    detail = opened.store.detail(tables.SILVER_TRANSACTIONS)
    assert (detail.id, detail.properties) == before
    assert detail.partition_columns == ("date",)


@pytest.mark.parametrize(
    "deleted",
    [
        pytest.param("true", marks=pytest.mark.long),
        pytest.param("position = 0", marks=pytest.mark.long),
        "position < 2",
    ],
)
def test_streams_go_on_and_read_no_row_twice(lake: Any, deleted: str) -> None:
    """A whole table, a part of a file, a whole file is deleted: Delta's own RESTORE would only add files."""
    opened = lake()
    detected(opened, pair("1", 0), pair("2", 2))
    assert alerted(opened) == ["part-0-1", "part-0-3"]
    version = opened.store.version(tables.SILVER_TRANSACTIONS)
    delete(opened, deleted)
    restore(opened, "silver_transactions", version, allow_streams=True)
    assert positions(opened) == [0, 1, 2, 3]
    assert status(opened).streams.lag == {}

    detected(opened, pair("3", 4))
    assert alerted(opened) == ["part-0-1", "part-0-3", "part-0-5"]


def test_a_stream_that_reads_the_table_must_be_confirmed(lake: Any) -> None:
    opened = lake()
    detected(opened, pair("1", 0))
    with pytest.raises(UsageError, match=r"silver_transactions is read by detect, .*add --allow-streams"):
        restore(opened, "silver_transactions", 0)
    assert positions(opened) == [0, 1]
    assert restore(opened, "silver_transactions", 0, allow_streams=True).rows_after == 0


def test_nothing_is_restored_while_a_step_runs_or_where_one_was_cut(lake: Any) -> None:
    opened = lake()
    detected(opened, pair("1", 0))
    with (
        FileLock(opened.root / "locks" / "detect"),
        pytest.raises(FraudlakeError, match="another process already runs 'detect'"),
    ):
        restore(opened, "silver_transactions", 0, allow_streams=True)
    commits = opened.checkpoint("detect").folder / "commits"
    max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name)).unlink()
    with pytest.raises(FraudlakeError, match="detect was interrupted within a micro-batch: run 'fraudlake detect'"):
        restore(opened, "silver_transactions", 0, allow_streams=True)
    assert positions(opened) == [0, 1]


def test_a_time_names_the_version_that_the_table_had_then(lake: Any) -> None:
    opened = lake()
    land(opened, pair("1", 0))
    land(opened, pair("2", 2))
    commits = {commit.version: commit.at for commit in opened.store.history(tables.SILVER_TRANSACTIONS)}
    assert restore(opened, "silver_transactions", None, commits[2] - timedelta(milliseconds=1)).version == 1
    with pytest.raises(UsageError, match="no version at 2001-01-01 00:00:00 UTC: its oldest, 0"):
        restore(opened, "silver_transactions", None, datetime(2001, 1, 1, tzinfo=UTC))


def test_a_version_whose_files_are_gone_is_refused_and_nothing_changes(lake: Any) -> None:
    opened = lake()
    land(opened, pair("1", 0))
    delete(opened, "position = 0")
    name = "silver_transactions"
    opened.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
    )
    opened.spark.sql(f"VACUUM {name}")
    before = opened.store.version(tables.SILVER_TRANSACTIONS)
    with pytest.raises(FraudlakeError, match="version 1 of silver_transactions cannot be read any more") as refused:
        restore(opened, name, 1)
    assert "\n" not in str(refused.value)
    assert (positions(opened), opened.store.version(tables.SILVER_TRANSACTIONS)) == ([1], before)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["silver_alert", "--version", "0"], "there is no table silver_alert; the nearest one is silver_alerts"),
        (["silver_alerts", "--version", "99"], "silver_alerts has no version 99: it has 0 to 0"),
        (["silver_alerts", "--version", "0"], "silver_alerts is at version 0 already"),
        (["bronze_files", "--version", "0"], "cannot be restored without them"),
        (["silver_alerts"], "give either --version N or --timestamp TIME"),
        (["silver_alerts", "--timestamp", "noon"], "--timestamp noon: must be a time such as 2026-03-07"),
    ],
)
def test_a_mistake_is_one_line(lake: Any, fraudlake_here: FraudlakeHere, arguments: list[str], line: str) -> None:
    done = fraudlake_here("--lake", str(lake().root), "restore", *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_prints_versions_and_rows(lake: Any, fraudlake_here: FraudlakeHere) -> None:
    opened = lake()
    land(opened, pair("1", 0))
    present = opened.store.version(tables.SILVER_TRANSACTIONS)
    done = fraudlake_here("--lake", str(opened.root), "--json", "restore", "silver_transactions", "--version", "0")
    assert done.returncode == 0, done.stderr
    versions = f'"version_before": {present}, "version_after": {opened.store.version(tables.SILVER_TRANSACTIONS)}'
    assert done.stdout == (
        f'{{"table": "silver_transactions", "version": 0, {versions}, "rows_before": 2, "rows_after": 0}}\n'
    )
    stream.run(opened, detect.streams(opened), "available-now")
    assert alerted(opened) == []
