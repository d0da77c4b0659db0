"""Days are computed again from bronze: what differs is shown, put in place once, and streams continue."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.gold import account_daily, alert_windows
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.store import Snapshot
from fraudlake.operations import rebuild as rebuilding
from fraudlake.operations import retention
from fraudlake.operations.rebuild import Changes, Rebuilt, rebuild
from fraudlake.operations.status import status
from fraudlake.quarantine import replay
from fraudlake.streams import aggregate, detect, groups, ingest, refine, stream
from tests.conftest import FraudlakeHere
from tests.plain_lake import fill

pytestmark = pytest.mark.stream

DAY_7 = date(2026, 3, 7)
ACROSS_MIDNIGHT = [("2026-03-06 23:59:30", "1", 0.5), ("2026-03-07 00:00:10", "1", 600.0)]
AT_NOON = [("2026-03-07 12:00:00", "1", 0.5), ("2026-03-07 12:00:01", "1", 600.0)]
BELOW_500 = [("2026-03-07 13:00:00", "2", 0.5), ("2026-03-07 13:00:01", "2", 450.0)]
INVALID = [("2026-03-07 14:00:00", "4", -5.0)]
INTO_THE_NEXT_DAY = [("2026-03-07 23:59:50", "3", 0.5), ("2026-03-08 00:00:05", "3", 700.0)]
NEXT_NOON = [("2026-03-08 12:00:00", "5", 0.5), ("2026-03-08 12:00:01", "5", 600.0)]
ALERTS = ["2026-03-07 00:00:10", "2026-03-07 12:00:01", "2026-03-08 00:00:05", "2026-03-08 12:00:01"]


def land(folder: Path, name: str, *rows: tuple[str, str, float], ids: list[str | None] | None = None) -> None:
    """Land a file of rows: time (UTC), account and amount, perhaps with the producer's ids."""
    times = pa.array([datetime.fromisoformat(row[0]).replace(tzinfo=UTC) for row in rows], pa.timestamp("us", "UTC"))
    columns = {"dt": times, "accountId": [row[1] for row in rows], "amount": [row[2] for row in rows]}
    columns |= {"alert": [False] * len(rows)} | ({"transaction_id": ids} if ids else {})
    pq.write_table(pa.table(columns), folder / name)


def land_days(folder: Path) -> None:
    """Land three days of March."""
    rows = (ACROSS_MIDNIGHT, AT_NOON, BELOW_500, INVALID, INTO_THE_NEXT_DAY, NEXT_NOON)
    land(folder, "part-a-0", *(row for part in rows for row in part))


ALERTED = (ingest.streams, refine.streams, detect.streams)
"""The steps up to the alerts."""


def take(lake: Any, wanted: tuple[Any, ...] = (*ALERTED, aggregate.streams)) -> None:
    """Run steps over what is there."""
    for step in wanted:
        stream.run(lake, step(lake), "available-now")


@pytest.fixture(scope="module")
def three_days(module_lake: Any) -> Path:
    """A lake that has taken three days of March under the settings' defaults."""
    land_days(module_lake.root / "landing")
    take(module_lake)
    return Path(module_lake.root)


def with_large_above_400(lake: Any) -> Any:
    """Change the rule of a lake."""
    (known,) = rule_table.read(lake).live
    rule_table.apply(lake, [(known.rule.model_copy(update={"large_above": 400.0}), "live")], "test", None)
    return lake


@pytest.fixture
def filled(three_days: Path, lake: Callable[..., Any], landing: Path) -> Any:
    """A copy of the lake with three days of March."""
    shutil.copytree(three_days, landing.parent, dirs_exist_ok=True)
    return lake()


def alerts(lake: Any, version: int | None = None) -> list[str]:
    read = tables.SILVER_ALERTS if version is None else Snapshot(tables.SILVER_ALERTS, version)
    rows = lake.store.query(f"SELECT timestamp FROM {read.name}", read)
    return sorted(f"{time:%F %T}" for time in rows["timestamp"].to_pylist())


def detected(lake: Any) -> dict[str, datetime]:
    return {row["alert_id"]: row["detected_at"] for row in lake.store.rows(tables.SILVER_ALERTS).to_pylist()}


def account_days(lake: Any) -> list[tuple[str, str, int, int]]:
    rows = lake.store.query(
        f"SELECT account_id, date, transactions, alerts FROM {account_daily.TABLE.name}", account_daily.TABLE
    ).to_pylist()
    return sorted((row["account_id"], str(row["date"]), row["transactions"], row["alerts"]) for row in rows)


def hours(lake: Any) -> list[tuple[str, str, int, int]]:
    """The tumbling windows: account, start, transactions, alerts."""
    rows = lake.read(alert_windows.VIEW).where("kind = 'tumbling'").collect()
    return sorted(
        (row["account_id"], f"{row['window_start']:%F %T}", row["transactions"], row["alerts"]) for row in rows
    )


def counts(done: Rebuilt) -> dict[str, tuple[int, int, int]]:
    """Added, gone and same, by table."""
    return {
        name.removeprefix("silver_"): (changes.added, changes.gone, changes.same)
        for name, changes in done.changes.items()
    }


def times(samples: list[dict[str, Any]]) -> list[str]:
    return [str(row["timestamp"]) for row in samples]


@pytest.mark.long
def test_the_same_settings_change_nothing(filled: Any) -> None:
    """The first alert of the day needs the day before, the last one ends on the day after."""
    left, running = filled.root / "replays" / "days-left", filled.root / "replays" / "days-running"
    for folder in (left, running):
        (folder / "silver_alerts").mkdir(parents=True)
    os.utime(left, times=(0, 0))
    assert alerts(filled) == ALERTS
    before = (account_days(filled), hours(filled), detected(filled))
    done = rebuild(filled, DAY_7, DAY_7, apply=True)
    assert counts(done) == {"transactions": (0, 0, 6), "quarantine": (0, 0, 1), "alerts": (0, 0, 3)}
    # What a replay left that was killed is removed, what one computes meanwhile is not.
    assert not left.exists() and running.exists()
    assert {name for name in done.versions if name.startswith("silver")} == set()
    assert (account_days(filled), hours(filled), detected(filled)) == before


@pytest.mark.long
def test_another_rule_adds_its_alerts_and_streams_go_on(filled: Any, lake: Callable[..., Any], landing: Path) -> None:
    known = detected(filled)
    opened = with_large_above_400(lake())
    shown = rebuild(opened, DAY_7, DAY_7)
    assert counts(shown)["alerts"] == (1, 0, 3)
    assert times(shown.changes["silver_alerts"].samples_added) == ["2026-03-07 13:00:01"]
    assert (shown.is_applied, shown.versions, alerts(opened)) == (False, {}, ALERTS)

    done = rebuild(opened, DAY_7, DAY_7, apply=True)
    assert alerts(opened) == sorted([*ALERTS, "2026-03-07 13:00:01"])
    assert {name: time for name, time in detected(opened).items() if name in known} == known
    before, after = done.versions["silver_alerts"]
    assert (alerts(opened, before), after) == (ALERTS, before + 1)
    assert ("2", "2026-03-07", 2, 1) in account_days(opened)
    assert ("2", "2026-03-07 13:00:00", 2, 1) in hours(opened)
    assert status(opened).gaps == []

    land(landing, "part-a-1", ("2026-03-08 13:00:00", "6", 0.5), ("2026-03-08 13:00:01", "6", 450.0))
    take(opened, ALERTED)
    assert alerts(opened) == sorted([*ALERTS, "2026-03-07 13:00:01", "2026-03-08 13:00:01"])


@pytest.mark.long
@pytest.mark.usefixtures("filled")
def test_another_quality_rule_moves_rows_and_takes_their_alerts_along(lake: Callable[..., Any], landing: Path) -> None:
    opened = lake(timestamp_floor="2026-03-08")
    done = rebuild(opened, DAY_7, DAY_7, apply=True)
    assert counts(done) == {"transactions": (0, 6, 0), "quarantine": (7, 1, 0), "alerts": (0, 3, 0)}
    assert alerts(opened) == ["2026-03-08 12:00:01"]
    assert account_days(opened) == [
        ("1", "2026-03-06", 1, 0),
        ("3", "2026-03-08", 1, 0),
        ("5", "2026-03-08", 2, 1),
    ]
    assert [window[:2] for window in hours(opened)] == [
        ("1", "2026-03-06 23:00:00"),
        ("3", "2026-03-08 00:00:00"),
        ("5", "2026-03-08 12:00:00"),
    ]
    assert status(opened).gaps == []

    # Into silver, in which the days are empty now: a stream must not take these rows for new ones.
    opened = lake(warn=("amount_is_positive",))
    assert counts(rebuild(opened, DAY_7, DAY_7, apply=True)) == {
        "transactions": (7, 0, 0),
        "quarantine": (0, 7, 0),
        "alerts": (3, 0, 0),
    }
    land(landing, "part-a-1", ("2026-03-08 13:00:00", "6", 0.5), ("2026-03-08 13:00:01", "6", 600.0))
    take(opened)
    assert alerts(opened) == [*ALERTS, "2026-03-08 13:00:01"]
    assert status(opened).gaps == []


@pytest.mark.long
def test_a_replay_suppresses_what_the_stream_has_suppressed(lake: Callable[..., Any], landing: Path) -> None:
    """Account 1 has an alert before its entry begins, one while it holds, and nobody else is concerned."""
    opened, morning = lake(), datetime(2026, 3, 7, 6, tzinfo=UTC)
    until = morning + timedelta(days=1)
    entry = Entry("e1", "suppressed", "small_then_large", "account", "1", "1", morning, until, "why", "ann", morning)
    fill(opened.root, tables.SILVER_LIST_ENTRIES, entry.added)
    land_days(landing)
    take(opened)
    raised = [alert for alert in ALERTS if alert != "2026-03-07 12:00:01"]
    assert alerts(opened) == raised
    assert ("1", "2026-03-07", 3, 1) in account_days(opened)
    (held,) = opened.store.rows(tables.SILVER_SUPPRESSED_ALERTS).to_pylist()
    assert (held["entry_id"], f"{held['timestamp']:%F %T}", held["is_shadow"]) == ("e1", "2026-03-07 12:00:01", False)

    done = rebuild(opened, DAY_7, DAY_7, apply=True)
    assert (counts(done)["alerts"], counts(done)["suppressed_alerts"]) == ((0, 0, 2), (0, 0, 1))
    assert opened.store.rows(tables.SILVER_SUPPRESSED_ALERTS).to_pylist() == [held]

    # Somebody changes the past by hand.
    fill(opened.root, tables.SILVER_LIST_ENTRIES, entry.ended(morning + timedelta(hours=6), "", "bob", morning))
    assert counts(rebuild(opened, DAY_7, DAY_7, apply=True))["suppressed_alerts"] == (0, 1, 0)
    assert alerts(opened) == ALERTS
    assert opened.store.count(tables.SILVER_SUPPRESSED_ALERTS) == 0
    assert ("1", "2026-03-07", 3, 2) in account_days(opened)
    assert status(opened).gaps == []


BURST = {"name": "burst", "kind": "threshold", "aggregate": "count", "window": "2 hours", "above": 3}
RISING = {
    "name": "rising",
    "kind": "pattern",
    "pattern": "A B",
    "define": {"B": "B.amount > A.amount"},
    "skip": "PAST LAST ROW",
}


@pytest.mark.long
@pytest.mark.parametrize("ordering", ["arrival", "event_time"])
def test_alerts_of_every_kind_of_rule_follow_even_behind_the_days(
    lake: Callable[..., Any], landing: Path, ordering: str
) -> None:
    """A fourth row within two hours ends after the day, and another pair of rising amounts moves all that follow."""
    rows = [("2026-03-07 22:30:00", 30.0), ("2026-03-07 23:10:00", -5.0), ("2026-03-07 23:50:00", 20.0)]
    land(landing, "part-7", *((time, "7", amount) for time, amount in rows), ("2026-03-08 00:20:00", "7", 10.0))
    rows = [("2026-03-07 10:00:00", 10.0), ("2026-03-07 11:00:00", 20.0), ("2026-03-07 12:00:00", -5.0)]
    land(landing, "part-8", *((time, "8", amount) for time, amount in rows), ("2026-03-07 13:00:00", "8", 30.0))
    land(landing, "part-9", ("2026-03-08 14:00:00", "8", 40.0), ("2026-03-09 12:00:00", "9", 10.0))
    same = {"rules": [BURST, RISING], "ordering": ordering}
    opened = lake(**same)
    take(opened, ALERTED)
    assert alerts(opened) == ["2026-03-07 11:00:00", "2026-03-08 14:00:00"]
    assert counts(rebuild(opened, DAY_7, DAY_7))["alerts"] == (0, 0, 2)

    opened = lake(**same, warn=("amount_is_positive",))
    done = rebuild(opened, DAY_7, DAY_7, apply=True)
    assert counts(done)["alerts"] == (3, 1, 1)
    raised = opened.store.query(
        f"SELECT rule, timestamp FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    ).to_pylist()
    assert sorted((row["rule"], f"{row['timestamp']:%F %T}") for row in raised) == [
        ("burst", "2026-03-08 00:20:00"),
        ("rising", "2026-03-07 11:00:00"),
        ("rising", "2026-03-07 13:00:00"),
        ("rising", "2026-03-07 23:50:00"),
    ]
    assert counts(rebuild(opened, DAY_7, DAY_7))["alerts"] == (0, 0, 4)


@pytest.mark.long
@pytest.mark.usefixtures("each_writer", "filled")
def test_a_replay_that_was_cut_is_finished_by_the_next_one_however_often_it_was(
    lake: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = with_large_above_400(lake(warn=("amount_is_positive",)))
    replace = SparkWriter.replace
    command = "fraudlake replay --from 2026-03-07 --to 2026-03-07 --apply"

    def killed(*arguments: Any) -> None:
        raise OSError("killed")

    for cut_at in ("silver_quarantine", "silver_alerts", "aggregates"):

        def killed_at(self: SparkWriter, *arguments: Any, cut_at: str = cut_at) -> None:
            if self._table.name == cut_at:
                killed()
            replace(self, *arguments)

        with monkeypatch.context() as patched:
            patched.setattr(SparkWriter, "replace", killed_at)
            if cut_at == "aggregates":
                patched.setattr(groups, "recompute", killed)
            with pytest.raises(OSError, match="killed"):
                rebuild(opened, DAY_7, DAY_7, apply=True)
        assert any(command in gap for gap in status(opened).gaps)
        for days, apply in (((DAY_7, DAY_7), False), ((DAY_7, date(2026, 3, 8)), True)):
            with pytest.raises(FraudlakeError, match=f"a replay was interrupted: run '{command}'"):
                rebuild(opened, *days, apply)

    rebuild(opened, DAY_7, DAY_7, apply=True)
    assert alerts(opened) == sorted([*ALERTS, "2026-03-07 13:00:01"])
    assert account_days(opened) == [
        ("1", "2026-03-06", 1, 0),
        ("1", "2026-03-07", 3, 2),
        ("2", "2026-03-07", 2, 1),
        ("3", "2026-03-07", 1, 0),
        ("3", "2026-03-08", 1, 1),
        ("4", "2026-03-07", 1, 0),
        ("5", "2026-03-08", 2, 1),
    ]
    assert ("2", "2026-03-07 13:00:00", 2, 1) in hours(opened)
    assert ("4", "2026-03-07 14:00:00", 1, 0) in hours(opened)
    assert status(opened).gaps == []
    assert [path.name for path in opened.replays.iterdir()] == []


@pytest.mark.long
def test_what_a_replay_of_the_quarantine_corrected_stays(filled: Any) -> None:
    replay.replay(filled, None, {"amount": "abs(amount)"})
    take(filled, ALERTED)
    assert counts(rebuild(filled, DAY_7, DAY_7)) == {
        "transactions": (0, 0, 7),
        "quarantine": (0, 0, 0),
        "alerts": (0, 0, 3),
    }


@pytest.mark.long
def test_of_two_rows_with_an_id_the_one_that_came_first_stays(lake: Callable[..., Any], landing: Path) -> None:
    opened = lake()
    land(landing, "part-b-0", ("2026-03-07 12:00:00", "1", 20.0), ids=["x"])
    take(opened, ALERTED)
    land(landing, "part-a-0", ("2026-03-07 12:00:00", "1", 30.0), ids=["x"])
    take(opened, ALERTED)
    assert counts(rebuild(opened, DAY_7, DAY_7)) == {
        "transactions": (0, 0, 1),
        "quarantine": (0, 0, 1),
        "alerts": (0, 0, 0),
    }


@pytest.mark.long
def test_alerts_of_transactions_that_the_detector_still_holds_are_left_to_the_stream(
    lake: Callable[..., Any], landing: Path
) -> None:
    land_days(landing)
    opened = lake(ordering="event_time", max_out_of_orderness="10 seconds", buckets=2)
    take(opened, ALERTED)
    assert alerts(opened) == ALERTS[:3]
    done = rebuild(opened, DAY_7, date(2026, 3, 8), apply=True)
    assert counts(done)["alerts"] == (0, 0, 3)
    land(landing, "part-a-1", ("2026-03-08 13:00:00", "6", 20.0))
    take(opened, ALERTED)
    assert alerts(opened) == ALERTS


@pytest.mark.long
@pytest.mark.usefixtures("filled")
def test_days_whose_rows_have_left_are_refused(lake: Callable[..., Any]) -> None:
    since_march_7 = timedelta(days=(datetime.now(UTC).date() - date(2026, 3, 7)).days)
    opened = lake(row_retention={"bronze_transactions": since_march_7}, max_idle=since_march_7)
    retention.remove_old_rows(opened)
    with pytest.raises(UsageError, match=r"rows before 2026-03-07 have left .*: choose 2026-03-08 or later"):
        rebuild(opened, DAY_7, DAY_7)
    assert counts(rebuild(opened, date(2026, 3, 8), date(2026, 3, 8)))["alerts"] == (0, 0, 2)


@pytest.mark.long
def test_a_step_that_is_behind_must_read_first(filled: Any, landing: Path) -> None:
    land(landing, "part-a-1", ("2026-03-07 15:00:00", "1", 20.0))
    stream.run(filled, ingest.streams(filled), "available-now")
    with pytest.raises(FraudlakeError, match="refine has not read all of bronze_transactions: run 'fraudlake refine'"):
        rebuild(filled, DAY_7, DAY_7)
    stream.run(filled, refine.streams(filled), "available-now")
    with pytest.raises(FraudlakeError, match="detect has not read all of silver_transactions: run 'fraudlake detect'"):
        rebuild(filled, DAY_7, DAY_7)


def test_the_command_prints_what_changes(
    lake: Callable[..., Any], fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(lake().root)
    changes = {"silver_alerts": Changes(1, 0, 3, [{"account_id": "2", "rule": None}], [])}
    done = Rebuilt(DAY_7, DAY_7, changes, {"silver_alerts": (1, 2)}, True)
    monkeypatch.setattr(rebuilding, "rebuild", lambda *_: done)
    days = ("replay", "--from", "2026-03-07", "--to", "2026-03-07")
    text = fraudlake_here("--lake", root, *days, "--apply").stdout.splitlines()
    assert text[1:] == [
        "  silver_alerts: 1 added, 0 removed, 3 unchanged",
        "    + account_id=2",
        "written",
        "  silver_alerts: version 2; before 1",
    ]
    monkeypatch.undo()
    backwards = fraudlake_here("--lake", root, "replay", "--from", "2026-03-08", "--to", "2026-03-07")
    assert (backwards.returncode, backwards.stderr) == (2, "fraudlake: --to 2026-03-07 is before --from 2026-03-08\n")
