"""A lake that is copied, restored from an archive and moved, between runs: every table is as without that."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake import contents, open_lake
from fraudlake.model.registry import Registry
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from tests.conftest import FLINK, run

pytestmark = [pytest.mark.stream, pytest.mark.long]

ROUNDS = [sorted((FLINK / "twodays").glob(names)) for names in ("*f9208*", "*8cf8*-1*", "*8cf8*-[02-9].parquet")]
SETTINGS = {"FRAUDLAKE_BUCKETS": "2", "FRAUDLAKE_ALGORITHM": "logistic", "FRAUDLAKE_MAX_OUT_OF_ORDERNESS": "1 hour"}
WHEN_AND_WHERE = {
    *("_ingested_at", "quarantined_at", "detected_at", "scored_at", "noted_at", "number", "inode", "path"),
    *("modified_at", "rejected_at", "delivered_at", "attempted_at", "trained_at", "published_at", "changed_at"),
}
"""Columns that say when or where something was done."""


def go_on(lake: Path, number: int) -> None:
    """Land the files of a round, and take them through every stream."""
    for file in ROUNDS[number]:
        shutil.copyfile(file, lake / "landing" / file.name)
    run(lake, "ingest")
    run(lake, "refine")
    run(lake, "detect")
    run(lake, "aggregate")
    if number == 0:
        run(lake, "train")
    run(lake, "score")
    run(lake, "deliver", "--to", "file", "--delivery-folder", str(lake / "delivered"))


def rows(lake: Any, table: tables.Table) -> Counter[str]:
    """The rows of a table, without when and where they were written; a sum of doubles depends on the order of rows."""
    columns = [name for name in lake.table(table).column_names if name not in WHEN_AND_WHERE]
    found = lake.store.rows(table).select(columns).to_pylist()
    for row in found:
        row.update({name: round(row[name], 6) for name in ("amount_sum",) if name in row})
    return Counter(json.dumps(row, default=repr, sort_keys=True) for row in found)


def files(folder: Path) -> set[tuple[str, int, int]]:
    """All files but the state's partitions, of which Spark makes snapshots whenever it wants."""
    partitions = folder / "checkpoints" / "detect" / "state" / "0"
    return {
        (str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in folder.rglob("*")
        if file.is_file() and not (file.is_relative_to(partitions) and file.relative_to(partitions).parts[0].isdigit())
    }


def delivered(lake: Path) -> list[str]:
    lines = [line for file in (lake / "delivered").rglob("*.json*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


@pytest.mark.parametrize("ordering", ["arrival", pytest.param("event_time", marks=pytest.mark.slow)])
def test_a_lake_that_was_copied_restored_and_moved_goes_on_exactly_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    for name, value in {**SETTINGS, "FRAUDLAKE_ORDERING": ordering}.items():
        monkeypatch.setenv(name, value)
    undisturbed, copy, moved = tmp_path / "lake", tmp_path / "copy", tmp_path / "ein See" / "Köln"
    (undisturbed / "landing").mkdir(parents=True)
    go_on(undisturbed, 0)
    shutil.copytree(undisturbed, copy, copy_function=shutil.copy)  # cp -r: all files have other times
    go_on(undisturbed, 1)
    go_on(undisturbed, 2)
    before = files(undisturbed)

    go_on(copy, 1)
    with tarfile.open(tmp_path / "backup.tar", "w") as archive:
        archive.add(copy, "restored")
    shutil.rmtree(copy)
    with tarfile.open(tmp_path / "backup.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    moved.parent.mkdir()
    (tmp_path / "restored").rename(moved)
    (moved / "landing" / "done").mkdir()
    for file in ROUNDS[0]:  # somebody tidies up
        (moved / "landing" / file.name).rename(moved / "landing" / "done" / file.name)
    go_on(moved, 2)

    # The place that the lake came from was neither written, nor made again.
    assert files(undisturbed) == before
    assert not copy.exists()
    assert not (tmp_path / "restored").exists()

    one, other = (open_lake(Settings(lake=lake)) for lake in (undisturbed, moved))
    ledger = {tables.BRONZE_FILES, tables.BRONZE_REJECTED_FILES}  # they say what was done with the lake
    names = [table for table in contents.TABLES if table not in ledger]
    assert {table.name: rows(other, table) - rows(one, table) for table in names} == {table.name: {} for table in names}
    assert {table.name: rows(one, table) - rows(other, table) for table in names} == {table.name: {} for table in names}
    assert one.store.count(tables.SILVER_ALERTS) > 100
    assert one.store.count(tables.GOLD_FRAUD_PREDICTIONS) == one.store.count(tables.SILVER_TRANSACTIONS) == 50_000
    assert status(other).gaps == []
    reasons = {row["error"].partition(":")[0] for row in other.store.rows(tables.BRONZE_REJECTED_FILES).to_pylist()}
    assert (reasons, other.store.count(tables.BRONZE_REJECTED_FILES)) == ({"it was renamed"}, len(ROUNDS[0]))
    assert delivered(moved) == delivered(undisturbed)
    assert Registry.of(other).load("1").number == "1"
