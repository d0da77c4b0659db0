"""Files are rewritten by delta-rs, and the commit changes no row, whatever other processes commit meanwhile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from fraudlake import tables
from fraudlake.lake import conflict, publication, rewriting
from fraudlake.lake.commit import Commit
from fraudlake.lake.data_file import DataFile
from fraudlake.lake.spark_writer import SparkWriter

COLUMNS = pa.schema([("account", pa.string()), ("number", pa.int64()), ("date", pa.string())])


def write(folder: Path, number: int, day: str | None = "2026-03-07", rows: int = 100) -> None:
    batch = [{"account": str(row % 50), "number": number * rows + row, "date": day} for row in range(rows)]
    write_deltalake(folder, pa.Table.from_pylist(batch, COLUMNS), mode="append", partition_by=["date"])


def files(folder: Path) -> list[DataFile]:
    actions = pa.table(DeltaTable(folder).get_add_actions()).to_pylist()
    return [DataFile(a["path"], a["size_bytes"], a["modification_time"], a["partition"]) for a in actions]


def numbers(folder: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(folder).to_pyarrow_table())["number"].to_pylist())


def log(folder: Path) -> list[dict[str, Any]]:
    return publication.actions(folder, DeltaTable(folder).version())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    for number in range(3):
        write(folder, number)
    write(folder, 3, day=None)
    return folder


def test_chosen_files_are_compacted_and_the_others_stay(table: Path, tmp_path: Path) -> None:
    chosen = [file for file in files(table) if file.partition["date"]][:2]
    others = {file.path for file in files(table)} - {file.path for file in chosen}
    rewriting.rewrite(table, chosen, (), 1 << 20, tmp_path / "scratch")
    assert numbers(table) == [*range(400)]
    assert others < {file.path for file in files(table)}
    assert len(files(table)) == 3
    assert not (tmp_path / "scratch").exists()


def test_times_that_spark_wrote_stay_however_far_ahead_they_are(tmp_path: Path) -> None:
    table = tmp_path / "table"
    times = pa.schema([("time", pa.timestamp("us", "UTC")), ("date", pa.string())])
    delta = DeltaTable.create(table, times, partition_by=["date"])
    written = [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None, datetime(1, 1, 1, tzinfo=UTC)]
    added: list[Any] = []
    (table / "date=2026-03-07").mkdir()
    for number, time in enumerate(written):
        file = table / "date=2026-03-07" / f"{number}.parquet"
        rows = pa.table({"time": pa.array([time], times.field("time").type)})
        pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
        added.append(
            AddAction(f"date=2026-03-07/{file.name}", file.stat().st_size, {"date": "2026-03-07"}, 0, True, "{}")
        )
    delta.create_write_transaction(added, "append", times, ["date"])
    rewriting.rewrite(table, files(table), (), 1 << 20, tmp_path / "scratch")
    (file,) = files(table)
    assert {*pq.read_table(table / file.path, partitioning=None)["time"].to_pylist()} == {*written}


def test_clustering_sorts_a_day_into_files_that_queries_can_skip_and_is_known_as_such(
    table: Path, tmp_path: Path
) -> None:
    for number in range(4, 8):
        write(table, number, rows=5000)
    rows = numbers(table)
    rewriting.rewrite(table, files(table), ("account",), 16 << 10, tmp_path / "scratch")
    assert numbers(table) == rows
    stats = DeltaTable(table).get_add_actions(flatten=True)
    ranges = zip(*(stats.column(f"{end}.account").to_pylist() for end in ("min", "max")), strict=True)
    dated = [pair for pair, day in zip(ranges, stats.column("partition.date").to_pylist(), strict=True) if day]
    assert len(dated) > 3
    assert sum(low <= "31" <= high for low, high in dated) <= 2
    commit = Commit.of(DeltaTable(table).history(1)[0])
    assert (commit.operation, commit.is_clustered, commit.days) == ("OPTIMIZE", True, {"2026-03-07", "NULL"})
    assert not commit.changes_rows
    changes = [action for line in log(table) for name, action in line.items() if name in ("add", "remove")]
    assert not any(change["dataChange"] for change in changes)


def test_rows_that_others_append_meanwhile_stay(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, lambda: write(table, 4))
    rewriting.rewrite(table, files(table), (), 1 << 20, tmp_path / "scratch")
    assert numbers(table) == [*range(500)]
    assert len(files(table)) == 3


@pytest.mark.parametrize("other", ["delete", "compact", "optimize"])
def test_a_rewriting_that_another_commit_has_overtaken_is_given_up(
    other: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = files(table)
    others = {
        "delete": lambda: DeltaTable(table).delete("number = 7"),
        "compact": lambda: DeltaTable(table).optimize.compact(),
        "optimize": lambda: rewriting.rewrite(table, chosen, ("account",), 1 << 20, tmp_path / "other"),
    }
    meanwhile(monkeypatch, others[other])
    with pytest.raises(CommitFailedError) as error:
        rewriting.rewrite(table, chosen, (), 1 << 20, tmp_path / "scratch")
    assert conflict.is_conflict(error.value)
    assert numbers(table) == [number for number in range(400) if other != "delete" or number != 7]
    known = {Path(file.path) for file in files(table)}
    monkeypatch.undo()
    with pytest.raises(CommitFailedError):
        rewriting.rewrite(table, chosen, (), 1 << 20, tmp_path / "scratch")
    assert known == {Path(file.path) for file in files(table)}


def test_what_a_killed_process_has_left_is_no_obstacle(table: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch" / "_delta_log").mkdir(parents=True)
    (tmp_path / "scratch" / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"half": "written"}))
    rewriting.rewrite(table, files(table), (), 1 << 20, tmp_path / "scratch")
    assert numbers(table) == [*range(400)]
    assert len(files(table)) == 2


def meanwhile(monkeypatch: pytest.MonkeyPatch, commit: Any) -> None:
    """Have another commit come between the rewriting of files and its own commit."""
    publish = rewriting._publish

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(rewriting, "_publish", publish)
        commit()
        publish(*arguments)

    monkeypatch.setattr(rewriting, "_publish", overtaken)


@pytest.mark.parametrize(
    ("days", "by", "statement"),
    [
        (["2026-03-08", "2026-03-07"], (), " WHERE date IN (DATE'2026-03-07', DATE'2026-03-08')"),
        (["2026-03-07"], ("account",), " WHERE date IN (DATE'2026-03-07') ZORDER BY (account)"),
        (["2026-03-07", None], (), " WHERE date IN (DATE'2026-03-07') OR date IS NULL"),
        ([None], (), " WHERE date IS NULL"),
        ([], (), ""),
    ],
)
def test_spark_rewrites_the_days_of_the_files(days: list[str | None], by: tuple[str, ...], statement: str) -> None:
    ran: list[str] = []
    session = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: ran.append(text)))
    lake: Any = SimpleNamespace(
        session_for_files=lambda table, size: session, name_of=lambda table: table.name, table=lambda table: table
    )
    chosen = [DataFile(str(number), 1, 0, {"date": day}) for number, day in enumerate(days)]
    SparkWriter(lake, tables.SILVER_TRANSACTIONS).rewrite(chosen, by, 1)
    assert ran == [f"OPTIMIZE silver_transactions{statement}"]
