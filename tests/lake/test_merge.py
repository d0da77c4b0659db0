"""Changes reach a table by key: the same rows, whether delta-rs or Spark merges them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from fraudlake.gold import account_tiles
from fraudlake.lake import delta_rs_writer
from fraudlake.lake.commit import new_rows

pytestmark = pytest.mark.stream

TABLE = account_tiles.TABLE
Tile = tuple[str, int | None, int, int, bool]
"""Account, hour, day of March, transactions, and whether it is gone."""

BEFORE: list[Tile] = [
    ("1", 1, 7, 2, False),
    ("1", 2, 7, 3, False),
    ("1", None, 7, 4, False),
    ("2", 5, 7, 5, False),
    ("2", 5, 8, 6, False),
]
CHANGES: list[Tile] = [
    ("1", 2, 7, 30, False),  # changed
    ("1", None, 7, 40, False),  # changed; part of its key is null
    ("2", 5, 7, 0, True),  # gone
    ("2", 5, 8, 6, False),  # as it was
    ("3", 5, 9, 7, False),  # new
    ("4", 5, 9, 0, True),  # was never there
]
AFTER = [
    ("1", 1, 7, 2),
    ("1", 2, 7, 30),
    ("1", None, 7, 40),
    ("2", 5, 8, 6),
    ("3", 5, 9, 7),
]


def changes(lake: Any, tiles: list[Tile]) -> Any:
    names = [*TABLE.column_names, "gone"]
    rows = [
        {
            "account_id": account,
            "tile_start": None if hour is None else datetime(2026, 3, day, hour, tzinfo=UTC),
            "date": date(2026, 3, day),
            "transactions": transactions,
            "gone": gone,
        }
        for account, hour, day, transactions, gone in tiles
    ]
    listed = [tuple(row.get(name) for name in names) for row in rows]
    return lake.session.createDataFrame(listed, f"{TABLE.columns}, gone BOOLEAN")


def stored(lake: Any) -> list[tuple[str, int | None, int, int]]:
    rows = lake.read(TABLE).selectExpr("account_id", "hour(tile_start)", "day(date)", "transactions").collect()
    return sorted(map(tuple, rows), key=str)


def take(lake: Any, tiles: list[Tile]) -> None:
    lake.writer(TABLE).merge(changes(lake, tiles), account_tiles.KEYS)


@pytest.mark.parametrize("clustering", ["zorder", pytest.param("liquid", marks=pytest.mark.long)])
def test_rows_are_changed_removed_and_added_by_their_keys(lake: Any, clustering: str) -> None:
    opened = lake(clustering=clustering)
    take(opened, BEFORE)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    (commit,) = opened.store.history(TABLE, 1)
    assert (commit.operation, commit.inserts) == ("MERGE", True)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    assert new_rows(opened.store.history(TABLE), commit.version + 1) == []


def test_more_changes_than_fit_are_merged_one_part_after_the_other(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_MERGED_AT_ONCE", 2)
    opened = lake()
    take(opened, BEFORE)
    take(opened, CHANGES)
    assert stored(opened) == AFTER
    assert [commit.operation for commit in opened.store.history(TABLE, 6)] == ["MERGE"] * 6


def test_a_tables_log_gets_a_checkpoint_every_ten_merges(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_MERGED_AT_ONCE", 1)
    opened = lake()
    take(opened, [("1", hour, 7, 1, False) for hour in range(11)])
    log = opened.root / "tables" / TABLE.name / "_delta_log"
    assert [file.name for file in log.glob("*.checkpoint.parquet")] == [f"{10:020d}.checkpoint.parquet"]
    assert len(stored(opened)) == 11


def test_changes_that_another_commit_overtakes_are_merged_with_what_it_wrote(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake()
    for tile in BEFORE[:3]:
        take(opened, [tile])
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
    assert opened.store.version(TABLE) == 0
