"""Changes reach a table by key: the same rows, whether delta-rs or Spark merges them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from fraudlake.gold import alert_windows
from fraudlake.lake import delta_rs_writer
from fraudlake.lake.commit import new_rows

pytestmark = pytest.mark.stream

TABLE = alert_windows.TABLE
Window = tuple[str, str, int | None, int, int, bool]
"""Kind, account, number, day of March, transactions, and whether it is gone."""

BEFORE: list[Window] = [
    ("count", "1", 1, 7, 2, False),
    ("count", "1", 2, 7, 3, False),
    ("session", "1", None, 7, 4, False),
    ("session", "2", None, 7, 5, False),
    ("session", "2", None, 8, 6, False),
]
CHANGES: list[Window] = [
    ("count", "1", 2, 7, 30, False),  # changed
    ("session", "1", None, 7, 40, False),  # changed; part of its key is null
    ("session", "2", None, 7, 0, True),  # gone
    ("session", "2", None, 8, 6, False),  # as it was
    ("session", "3", None, 9, 7, False),  # new
    ("session", "4", None, 9, 0, True),  # was never there
]
AFTER = [
    ("count", "1", 1, 7, 2),
    ("count", "1", 2, 7, 30),
    ("session", "1", None, 7, 40),
    ("session", "2", None, 8, 6),
    ("session", "3", None, 9, 7),
]


def changes(lake: Any, windows: list[Window]) -> Any:
    names = [*TABLE.column_names, "gone"]
    rows = [
        {
            "kind": kind,
            "account_id": account,
            "number": number,
            "window_start": datetime(2026, 3, day, tzinfo=UTC),
            "date": date(2026, 3, day),
            "transactions": transactions,
            "gone": gone,
        }
        for kind, account, number, day, transactions, gone in windows
    ]
    listed = [tuple(row.get(name) for name in names) for row in rows]
    return lake.session.createDataFrame(listed, f"{TABLE.columns}, gone BOOLEAN")


def stored(lake: Any) -> list[tuple[str, str, int | None, int, int]]:
    rows = lake.read(TABLE).collect()
    return sorted(
        ((row["kind"], row["account_id"], row["number"], row["date"].day, row["transactions"]) for row in rows),
        key=str,
    )


def take(lake: Any, windows: list[Window]) -> None:
    lake.apply_changes(changes(lake, windows), TABLE, alert_windows.KEYS)


@pytest.mark.parametrize("clustering", ["zorder", "liquid"])
def test_rows_are_changed_removed_and_added_by_their_keys(lake: Any, clustering: str) -> None:
    opened = lake(clustering=clustering)
    take(opened, BEFORE)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    (commit,) = opened.history(TABLE, 1)
    assert (commit.operation, commit.inserts) == ("MERGE", True)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    assert new_rows(opened.history(TABLE), commit.version + 1) == []


def test_more_changes_than_fit_are_merged_one_part_after_the_other(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_MERGED_AT_ONCE", 2)
    opened = lake()
    take(opened, BEFORE)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    assert [commit.operation for commit in opened.history(TABLE, 6)] == ["MERGE"] * 6


def test_a_tables_log_gets_a_checkpoint_every_ten_merges(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_MERGED_AT_ONCE", 1)
    opened = lake()
    take(opened, [("count", "1", number, 7, 1, False) for number in range(11)])
    log = opened.root / "tables" / TABLE.name / "_delta_log"
    assert [file.name for file in log.glob("*.checkpoint.parquet")] == [f"{10:020d}.checkpoint.parquet"]
    assert len(stored(opened)) == 11


def test_changes_that_another_commit_overtakes_are_merged_with_what_it_wrote(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake()
    for window in BEFORE[:3]:
        take(opened, [window])
    merge = DeltaTable.merge
    overtaking = [lambda: opened.session.sql(f"OPTIMIZE {opened.name_of(TABLE)}"), lambda: take(opened, BEFORE[3:])]

    def overtaken(self: DeltaTable, *arguments: Any, **options: Any) -> Any:
        merging = merge(self, *arguments, **options)
        if overtaking:
            overtaking.pop(0)()
        return merging

    monkeypatch.setattr(DeltaTable, "merge", overtaken)
    take(opened, CHANGES)
    assert overtaking == []
    assert stored(opened) == AFTER


def test_nothing_to_change_is_no_commit(lake: Any) -> None:
    opened = lake()
    take(opened, [])
    assert opened.version(TABLE) == 0
