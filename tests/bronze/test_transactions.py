from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.bronze import parquet, transactions


def written(path: Path, rows: int, row_group: int) -> pa.Table:
    """A file of random rows, which no encoding makes smaller."""
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "dt": pa.array(random.integers(1_700_000_000, 1_800_000_000, rows) * 1_000_000, pa.timestamp("us")),
            "accountId": [f"{account:012x}" for account in random.integers(0, 2**48, rows)],
            "amount": random.random(rows),
            "alert": random.random(rows) < 0.5,
        }
    )
    pq.write_table(table, path, row_group_size=row_group, use_dictionary=False)
    return table


def pieces(contents: dict[str, bytes], size: int) -> Iterator[pa.RecordBatch]:
    """Files as Spark sends them: each in pieces of at most ``size`` bytes, two pieces a batch."""
    rows = [
        {"source": source, "modified": 7, "length": len(content), "content": content[begin : begin + size]}
        for source, content in contents.items()
        for begin in range(0, max(len(content), 1), size)
    ]
    for begin in range(0, len(rows), 2):
        yield pa.RecordBatch.from_pylist(rows[begin : begin + 2])


@pytest.mark.slow
@pytest.mark.parametrize("row_group", [10, 1000], ids=["many row groups", "one row group"])
@pytest.mark.parametrize("size", [1, 1000, 10**9], ids=lambda size: f"pieces of {size}")
def test_a_file_in_pieces_gives_each_row_once_with_its_number(tmp_path: Path, row_group: int, size: int) -> None:
    tables = {name: written(tmp_path / name, 300, row_group) for name in ("part-0", "part-1")}
    contents = {name: (tmp_path / name).read_bytes() for name in tables}

    taken = {
        source: (modified, length, pa.Table.from_batches(transactions.read_file(content, source)))
        for source, modified, length, content in transactions.whole_files(pieces(contents, size))
    }

    assert list(taken) == list(tables)
    for source, (modified, length, rows) in taken.items():
        assert (modified, length) == (7, len(contents[source]))
        assert rows["_source_row"].to_pylist() == list(range(300))
        assert rows["_source_file"].unique().to_pylist() == [source]
        for name in ("accountId", "amount", "alert"):
            assert rows[name].to_pylist() == tables[source][name].to_pylist()


@pytest.mark.parametrize("row_group", [5_000, 200_000], ids=["many row groups", "one row group"])
def test_a_file_is_read_without_holding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group: int) -> None:
    monkeypatch.setattr(parquet, "BATCH_ROWS", 1_000)
    monkeypatch.setattr(parquet, "BUFFER_BYTES", 1 << 14)
    path = tmp_path / "part-0"
    written(path, 200_000, row_group)
    before = pa.total_allocated_bytes()

    held = [pa.total_allocated_bytes() - before for _ in parquet.batches(str(path))]

    assert len(held) == 200
    assert max(held) < path.stat().st_size / 2


@pytest.mark.stream
def test_spark_cuts_files_into_pieces_that_are_the_file_again(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PIECE_BYTES", 7)
    contents = {f"part-{size}": bytes(range(size)) for size in (0, 1, 6, 7, 8, 14, 15, 100)}
    rows = [(source, 3, bytearray(content)) for source, content in contents.items()]
    files = spark.createDataFrame(rows, "source STRING, modified BIGINT, content BINARY").coalesce(1)

    cut = transactions.in_pieces(files).toArrow()

    assert max(len(piece) for piece in cut["content"].to_pylist()) == 7
    assert len(cut) == 1 + 1 + 1 + 1 + 2 + 2 + 3 + 15
    again = {
        source: (size, Path(content).read_bytes() if isinstance(content, str) else content.to_pybytes())
        for source, _, size, content in transactions.whole_files(iter(cut.to_batches()))
    }
    assert again == {source: (len(content), content) for source, content in contents.items()}


@pytest.mark.stream
def test_one_query_counts_the_rows_of_files_and_computes_the_digests_of_those_with_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PIECE_BYTES", 5_000)
    for name, rows in (("large", 300), ("small", 20), ("none", 0)):
        written(tmp_path / name, rows, 1000)
    (tmp_path / "other").write_bytes(b"no parquet")
    contents = {path.name: path.read_bytes() for path in sorted(tmp_path.iterdir())}
    assert len(contents["small"]) < 5_000 < len(contents["large"])
    rows = [(source, 7, bytearray(content)) for source, content in contents.items()]
    files = spark.createDataFrame(rows, "source STRING, modified BIGINT, content BINARY").coalesce(1)

    def counted(with_digests: bool) -> dict[str, tuple[int, bool, str | None]]:
        counts = transactions.row_counts(transactions.in_pieces(files), parquet.glance, with_digests).toArrow()
        return {row["source"]: (row["rows"], row["error"] is None, row["digest"]) for row in counts.to_pylist()}

    digests = {name: hashlib.sha256(contents[name]).hexdigest() for name in ("large", "small")}
    expected = {"large": (300, True), "small": (20, True), "none": (0, True), "other": (0, False)}
    assert counted(True) == {name: (*count, digests.get(name)) for name, count in expected.items()}
    assert counted(False) == {name: (*count, None) for name, count in expected.items()}
