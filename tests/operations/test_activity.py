"""What streams do now: checkpoints and commits, written here by hand, become rates, lags and times."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.operations.activity import Watcher
from fraudlake.settings import Settings
from fraudlake_cli.commands import watch

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(Settings(lake=tmp_path / "lake"))


def append(lake: Lake, table: tables.Table, rows: int, **values: object) -> str:
    """Append rows to a table in one commit; return its id."""
    folder = Path(lake.name) / "tables" / table.name
    columns = [pa.array([values.get(field.name)] * rows, field.type) for field in table.schema]
    write_deltalake(folder, pa.table(columns, schema=table.schema), mode="append")
    return str(DeltaTable(folder).metadata().id)


def batch(lake: Lake, step: str, number: int, began: datetime, seconds: float | None, table: str, version: int) -> None:
    """Write what Spark notes of a micro-batch that reads a table to before a version."""
    folder = lake.checkpoint(step).folder
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True, exist_ok=True)
    (folder / "fraudlake.json").write_text(json.dumps({"id": "1", "reads": {tables.BRONZE_TRANSACTIONS.name: table}}))
    times = json.dumps({"batchTimestampMs": began.timestamp() * 1000, "batchWatermarkMs": 0})
    source = json.dumps({"reservoirId": table, "reservoirVersion": version, "index": -1, "isStartingVersion": False})
    (folder / "offsets" / str(number)).write_text(f"v1\n{times}\n{source}")
    if seconds is not None:
        commit = folder / "commits" / str(number)
        commit.write_text("v1\n{}")
        os.utime(commit, times=(began.timestamp() + seconds,) * 2)


def test_a_stream_has_the_rate_of_the_last_minute_and_what_it_has_not_read(lake: Lake) -> None:
    table = append(lake, tables.BRONZE_TRANSACTIONS, 1000)  # version 1
    append(lake, tables.BRONZE_TRANSACTIONS, 120)  # 2
    append(lake, tables.BRONZE_TRANSACTIONS, 60)  # 3
    append(lake, tables.BRONZE_TRANSACTIONS, 7)  # 4
    batch(lake, "refine", 0, NOW - timedelta(minutes=5), 2.5, table, 2)
    batch(lake, "refine", 1, NOW - timedelta(seconds=50), 1.0, table, 3)
    batch(lake, "refine", 2, NOW - timedelta(seconds=30), 1.5, table, 4)
    batch(lake, "refine", 3, NOW - timedelta(seconds=4), None, table, 5)
    (refine,) = Watcher(lake, 5).look(NOW).streams
    assert (refine.batch, refine.seconds, refine.running_since) == (2, 1.5, NOW - timedelta(seconds=4))
    assert refine.rate == (120 + 60) / 60
    assert (refine.unread_commits, refine.unread_rows) == (1, 7)


def test_a_second_look_reads_what_is_new(lake: Lake) -> None:
    table = append(lake, tables.BRONZE_TRANSACTIONS, 10)
    batch(lake, "refine", 0, NOW - timedelta(seconds=9), 1.0, table, 2)
    watcher = Watcher(lake, 5)
    assert watcher.look(NOW).streams[0].unread_rows == 0
    append(lake, tables.BRONZE_TRANSACTIONS, 3)
    append(lake, tables.BRONZE_TRANSACTIONS, 4)
    append(lake, tables.SILVER_ALERTS, 1, alert_id="a", detected_at=NOW, timestamp=NOW)
    look = watcher.look(NOW)
    assert (look.streams[0].unread_commits, look.streams[0].unread_rows) == (2, 7)
    assert [alert["alert_id"] for alert in look.alerts] == ["a"]


def test_lines_are_of_micro_batches_and_alerts_and_without_any_say_what_to_run(lake: Lake) -> None:
    nothing = Watcher(lake, 5).look(NOW)
    assert watch.lines(nothing) == {"": "no stream has begun: run 'fraudlake run'"}
    table = append(lake, tables.BRONZE_TRANSACTIONS, 30)
    batch(lake, "refine", 7, datetime(2026, 3, 7, 12, tzinfo=UTC), 1.0, table, 1)
    alert = {"alert_id": "a1", "rule": "big", "account_id": "[red]\x1b[2J", "amount": 5.0, "explanation": "Big."}
    append(lake, tables.SILVER_ALERTS, 1, **alert, detected_at=datetime(2026, 3, 7, 12, 0, 2, tzinfo=UTC))
    look = Watcher(lake, 5).look(NOW)
    assert list(watch.lines(look).values()) == [
        "2026-03-07 12:00:01 refine: micro-batch 7 took 1.0 s; 0 rows a second; to read: 30 rows, 1 commit",
        "2026-03-07 12:00:02 alert a1 of big: Big.",
    ]


def test_the_view_shows_hostile_names_as_they_are(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    table = append(lake, tables.BRONZE_TRANSACTIONS, 30)
    batch(lake, "refine", 7, NOW - timedelta(seconds=8), 1.0, table, 1)
    alert = {"alert_id": "a1", "rule": "big", "account_id": "[red]\x1b[2J", "amount": 5.0, "explanation": "Big."}
    append(lake, tables.SILVER_ALERTS, 1, **alert, detected_at=NOW)
    watch.output.print(watch.view(lake.name, Watcher(lake, 5).look(NOW)))
    shown = capsys.readouterr().out
    assert "[red]\\x1b[2J" in shown
    assert "idle for 7 s" in shown
    assert "\x1b" not in shown
