"""A clock that is ahead removes nothing: the newest transaction and the commits of silver contradict it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake, machine_clock, open_lake
from fraudlake.operations import maintenance, rebuild, retention
from fraudlake.settings import Settings
from fraudlake.sources.file_source import FileSource
from tests import plain_lake

DAY, SILVER = timedelta(days=1), tables.SILVER_TRANSACTIONS.schema
NOW = datetime.now(UTC)
Ahead = Callable[[timedelta], None]


def transaction(at: datetime) -> dict[str, Any]:
    return {"transaction_id": f"{at}", "account_id": "7", "timestamp": at, "amount": 1.0, "date": at.date()}


def landed(at: datetime) -> dict[str, Any]:
    return {"dt": at, "accountId": "7", "amount": 1.0, "_ingested_at": NOW, "date": at.date()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake with a transaction of today, and one of a year ago."""
    root = plain_lake.make(tmp_path / "lake")
    plain_lake.fill(root, tables.BRONZE_TRANSACTIONS, landed(NOW), landed(NOW - 365 * DAY))
    plain_lake.fill(root, tables.SILVER_TRANSACTIONS, transaction(NOW), transaction(NOW - 365 * DAY))
    return root


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    """Put the clock forward, for what decides about rows and files."""

    def put(by: timedelta) -> None:
        class Clock(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Clock:
                return cls.fromtimestamp((datetime.now(UTC) + by).timestamp(), tz)

        for module in (machine_clock, retention, maintenance, rebuild):
            monkeypatch.setattr(module, "datetime", Clock)

    return put


def opened(root: Path, limit: timedelta = 400 * DAY, **given: Any) -> Lake:
    limits = dict.fromkeys(("bronze_transactions", "silver_transactions"), limit)
    return open_lake(Settings(lake=root, row_retention=limits, **given))


def counts(lake: Lake) -> tuple[int, int]:
    return lake.store.count(tables.BRONZE_TRANSACTIONS), lake.store.count(tables.SILVER_TRANSACTIONS)


@pytest.mark.parametrize("by", [8 * DAY, 40 * DAY, 730 * DAY])
def test_a_clock_that_is_ahead_removes_no_row(root: Path, ahead: Ahead, by: timedelta) -> None:
    lake = opened(root, limit=366 * DAY)
    ahead(by)
    with pytest.raises(FraudlakeError, match=r"^no row was removed: the clock says .* --max-idle \d+d$"):
        retention.remove_old_rows(lake)
    assert counts(lake) == (2, 2)


def test_a_limit_of_few_days_is_not_reached_by_a_clock_that_is_ahead_by_as_many(root: Path, ahead: Ahead) -> None:
    lake = opened(root, limit=3 * DAY)
    ahead(5 * DAY)
    with pytest.raises(FraudlakeError, match="no row was removed"):
        retention.remove_old_rows(lake)
    assert counts(lake) == (2, 2)


def test_rows_of_the_future_do_not_confirm_a_clock(root: Path, ahead: Ahead) -> None:
    plain_lake.fill(root, tables.SILVER_TRANSACTIONS, transaction(datetime(9999, 12, 30, tzinfo=UTC)))
    lake = opened(root)
    ahead(730 * DAY)
    with pytest.raises(FraudlakeError, match=f"is of {NOW:%Y-%m-%d}"):
        retention.remove_old_rows(lake)


def test_rows_and_commits_that_were_written_under_the_same_clock_do_not_confirm_it(root: Path, ahead: Ahead) -> None:
    lake = opened(root)
    then = NOW + 730 * DAY
    plain_lake.fill(root, tables.SILVER_TRANSACTIONS, transaction(then))
    ahead(730 * DAY)
    with pytest.raises(FraudlakeError, match=f"before that, the last commit is of {NOW:%Y-%m-%d}"):
        retention.remove_old_rows(lake)
    assert counts(lake) == (2, 3)


def test_nothing_old_is_no_reason_to_doubt_a_clock(root: Path, ahead: Ahead) -> None:
    ahead(30 * DAY)
    assert retention.remove_old_rows(opened(root)) == {}


def test_who_insists_has_what_the_clock_says(root: Path, ahead: Ahead) -> None:
    lake = opened(root, limit=366 * DAY)
    ahead(40 * DAY)
    with pytest.raises(FraudlakeError) as refused:
        retention.remove_old_rows(lake)
    days = str(refused.value).rpartition(" ")[2]
    assert retention._due(opened(root, limit=366 * DAY, max_idle=days)).keys() == {
        tables.BRONZE_TRANSACTIONS,
        tables.SILVER_TRANSACTIONS,
    }
    machine_clock.require(opened(root, limit=366 * DAY, max_idle=days))


def test_aggregates_follow_days_whose_rows_are_there_although_a_clock_is_ahead(root: Path, ahead: Ahead) -> None:
    lake = opened(root)
    before = machine_clock.first_day(lake, "silver_transactions")
    assert before == (NOW - 400 * DAY).date()
    ahead(730 * DAY)
    day = machine_clock.first_day(lake, "silver_transactions", "silver_alerts")
    assert before <= day <= date.fromordinal(before.toordinal() + 8)
    assert machine_clock.first_day(lake, "silver_alerts") is None


def test_files_stay_until_commits_confirm_the_clock(root: Path, ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = opened(root)
    monkeypatch.setattr(maintenance.contents, "TABLES", (tables.SILVER_TRANSACTIONS,))
    monkeypatch.setattr(type(lake.store), "may_have_unused_files", lambda self, table, retention: True)
    ahead(730 * DAY)
    done = maintenance.vacuum(lake)
    assert (done.in_doubt, done.tables) == (["silver_transactions"], [])


@pytest.mark.parametrize("by", [2 * DAY, 8 * DAY, 730 * DAY])
def test_the_files_of_a_replay_that_runs_stay_under_a_clock_that_is_ahead(
    root: Path, ahead: Ahead, by: timedelta
) -> None:
    lake = opened(root)
    runs = lake.replays / "days-of-one-that-runs"
    runs.mkdir(parents=True)
    ahead(by)
    rebuild._remove_left_behind(lake)
    assert runs.exists()


def test_the_files_of_a_replay_that_was_killed_long_ago_are_removed(root: Path) -> None:
    lake = opened(root)
    killed, plan = lake.replays / "days-of-one-that-was-killed", lake.replays / "20260307T120000-plan"
    for folder in (killed, plan):
        folder.mkdir(parents=True)
        os.utime(folder, ((NOW - 8 * DAY).timestamp(),) * 2)
    rebuild._remove_left_behind(lake)
    assert (killed.exists(), plan.exists()) == (False, True)


def commits_at(monkeypatch: pytest.MonkeyPatch, lake: Lake, *days_ago: float) -> None:
    commits = [lake.store.history(tables.SILVER_TRANSACTIONS)[0]] * len(days_ago)
    millis = [int((NOW - days * DAY).timestamp() * 1000) for days in days_ago]
    made = [type(one)(one.version, one.operation, at, False) for one, at in zip(commits, millis, strict=True)]
    monkeypatch.setattr(type(lake.store), "history", lambda self, table, limit=None: made)


@pytest.mark.parametrize(
    ("days_ago", "is_in_doubt"),
    [
        ((), False),
        ((1, 2, 3), False),
        ((1, 100), True),  # commits of yesterday, after months
        ((1, 3, 6, 100), True),
        ((1, 3, 6, 8, 100), False),  # for a week it has been written to regularly
        ((100, 101), True),
        ((-700, 1, 2, 9), False),  # a commit of the future, by a clock that was ahead
    ],
)
def test_a_clock_is_in_doubt_until_commits_go_back_further_than_max_idle(
    root: Path, monkeypatch: pytest.MonkeyPatch, days_ago: tuple[float, ...], is_in_doubt: bool
) -> None:
    lake = opened(root)
    commits_at(monkeypatch, lake, *days_ago)
    assert machine_clock.is_in_doubt(lake) is is_in_doubt


def log_of(root: Path) -> list[int]:
    return sorted(int(file.stem) for file in (root / "tables" / "silver_transactions" / "_delta_log").glob("*.json"))


def test_the_log_goes_back_until_optimize_finds_the_clock_right(
    root: Path, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(root)
    for _ in range(10):  # the log has a checkpoint after ten commits
        lake.writer(tables.SILVER_TRANSACTIONS).write(pa.Table.from_pylist([transaction(NOW)], SILVER), "append")
    for file in (root / "tables" / "silver_transactions" / "_delta_log").iterdir():
        os.utime(file, ((NOW - 40 * DAY).timestamp(),) * 2)
    monkeypatch.setattr(maintenance.contents, "TABLES", (tables.SILVER_TRANSACTIONS,))
    with monkeypatch.context():
        ahead(730 * DAY)
        maintenance.vacuum(lake)
        assert log_of(root)[0] == 0
    for module in (machine_clock, maintenance):
        monkeypatch.setattr(module, "datetime", datetime)
    maintenance.vacuum(lake)
    assert log_of(root)[0] > 0
    assert lake.store.count(tables.SILVER_TRANSACTIONS) == 12


@pytest.mark.parametrize("swept_at", [NOW - DAY, NOW + 730 * DAY])
def test_files_are_looked_for_if_the_last_time_was_long_ago_or_is_in_the_future(
    root: Path, monkeypatch: pytest.MonkeyPatch, swept_at: datetime
) -> None:
    source, swept = FileSource(), []
    monkeypatch.setattr(source, "sweep", swept.append)
    source.last_sweep = swept_at.timestamp()
    lake = opened(root)
    source._sweep_if_due(lake)
    assert swept == [lake]
