"""Rows reach a table in one commit, and only once: the same rows and the same log, whichever writer commits them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from fraudlake import tables
from fraudlake.lake import Lake, change_log
from fraudlake.lake.local import LocalLake

pytestmark = [
    pytest.mark.stream,
    pytest.mark.usefixtures("each_writer"),
    pytest.mark.parametrize("each_writer", ["delta-rs", "spark"], indirect=True),
]

TABLE = tables.BRONZE_FILES
BY_DELTA_RS = LocalLake.writer


def arrow(path: str) -> pa.Table:
    return pa.Table.from_pylist([{"path": path}], TABLE.schema)


def frame(lake: Lake, path: str) -> Any:
    nulls = [None] * (len(TABLE.fields) - 1)
    return lake.session.createDataFrame([(path, *nulls)], TABLE.columns)


def capitals(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.set_column(0, "path", pc.utf8_upper(batch["path"]))


def stored(lake: Lake) -> list[str]:
    return sorted(lake.store.rows(TABLE)["path"].to_pylist())


def engines(lake: LocalLake) -> list[str]:
    """What committed, in order."""
    commits = DeltaTable(lake.root / "tables" / TABLE.name).history()[:-1]
    return ["spark" if "Spark" in commit.get("engineInfo", "") else "delta-rs" for commit in reversed(commits)]


def test_frames_and_arrow_are_appended_and_overwrite_in_a_commit_each(lake: Any, each_writer: str) -> None:
    opened = lake()
    opened.writer(TABLE).append(frame(opened, "a"))
    opened.writer(TABLE).append(frame(opened, "b"), compute=capitals)
    opened.writer(TABLE).write(arrow("c"), "append")
    opened.writer(TABLE).write(arrow("d").to_reader(), "append")
    assert stored(opened) == ["B", "a", "c", "d"]
    opened.writer(TABLE).write(arrow("e"), "overwrite")
    assert stored(opened) == ["e"]
    assert engines(opened) == [each_writer] * 5


def test_a_transaction_is_committed_once_and_none_before_it_whoever_wrote_it(
    lake: Any, each_writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake()
    opened.writer(TABLE).append(frame(opened, "0"), ("frames", 0), metadata='{"batch": 0}')
    opened.writer(TABLE).append(frame(opened, "0 again"), ("frames", 0))
    opened.writer(TABLE).write(arrow("2"), "append", ("arrow", 2), '{"batch": 2}')
    opened.writer(TABLE).write(arrow("2 again"), "append", ("arrow", 2))
    opened.writer(TABLE).write(arrow("1, which is too late"), "append", ("arrow", 1))
    assert stored(opened) == ["0", "2"]
    assert [commit.record for commit in opened.store.history(TABLE, 2)] == [{"batch": 2}, {"batch": 0}]

    monkeypatch.setattr(LocalLake, "writer", BY_DELTA_RS if each_writer == "spark" else Lake.writer)
    opened.writer(TABLE).append(frame(opened, "0 by the other writer"), ("frames", 0))
    opened.writer(TABLE).write(arrow("2 by the other writer"), "append", ("arrow", 2))
    opened.writer(TABLE).append(frame(opened, "1"), ("frames", 1))
    assert stored(opened) == ["0", "1", "2"]
    assert len(set(engines(opened))) == 2


def test_of_two_changes_with_one_number_the_first_counts(lake: Any) -> None:
    opened, table = lake(), tables.SILVER_DEFINITION

    def write(value: str) -> bool:
        row = dict.fromkeys(table.column_names) | {"change": 2, "setting": "buckets", "value": value}
        return change_log.write(opened, table, "fraudlake definition", [row])

    assert [write("8"), write("4"), write("8")] == [True, False, True]
    assert opened.store.query(f"SELECT value FROM {table.name} WHERE change = 2", table)["value"].to_pylist() == ["8"]
