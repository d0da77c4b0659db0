"""Sizes: a small file that grows is refused with a reason before it takes the memory of what it would become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.bronze import parquet, sizes
from fraudlake.bronze.contract import FLINKS

MIB = 1 << 20


def written(path: Path, **columns: Any) -> str:
    rows = len(next(iter(columns.values())))
    table = {"accountId": ["7"] * rows, "amount": [1.0] * rows} | columns
    pq.write_table(pa.table(table), path / "part", compression="zstd")
    return str(path / "part")


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    """So many rows of one text, which is in memory once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def reason(file: str, largest: int = sizes.LARGEST_VALUE) -> str | None:
    before = pa.default_memory_pool().max_memory()
    rows, error = parquet.inspect(file, contract=replace(FLINKS, largest_value=largest))
    assert (rows == 0) == (error is not None)
    assert pa.default_memory_pool().max_memory() - before < 512 * MIB
    return error


def test_a_value_as_large_as_the_bound_is_read_and_a_larger_one_names_row_column_and_setting(tmp_path: Path) -> None:
    texts = ["a", "x" * MIB, "b"]
    assert reason(written(tmp_path, accountId=texts)) is None
    file = written(tmp_path, accountId=["a", "b", "x" * (MIB + 1)])
    told = "the value of accountId in row 2 has 1,048,577 bytes, more than 1,048,576 (the setting max_value_size)"
    assert reason(file) == told
    assert reason(file, 2 * MIB) is None


def test_a_name_of_70_000_characters_of_four_bytes_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, accountId=["\U0001f600" * 70_000, "7"])
    (batch,) = parquet.batches(file)
    assert batch["accountId"].to_pylist() == ["\U0001f600" * 70_000, "7"]


def test_a_huge_value_is_refused_by_the_footer(tmp_path: Path) -> None:
    file = written(tmp_path, other=["x" * (200 * MIB)])
    assert Path(file).stat().st_size < 100_000
    assert str(reason(file)).startswith("a value of other has 1")


@pytest.mark.parametrize("kind", ["text", "binary", "list", "struct", "map"])
def test_a_value_within_others_counts_with_its_column(tmp_path: Path, kind: str) -> None:
    large: dict[str, Any] = {
        "text": pa.array(["x" * 2 * MIB, None]),
        "binary": pa.array([b"x" * 2 * MIB, None]),
        "list": pa.array([["x" * MIB] * 2, None]),
        "struct": pa.array([{"a": {"b": "x" * 2 * MIB}}, None]),
        "map": pa.array([[("k", "x" * 2 * MIB)], None], pa.map_(pa.string(), pa.string())),
    }
    told = str(reason(written(tmp_path, other=large[kind])))
    assert "value of other" in told and "max_value_size" in told


def test_a_dictionary_that_becomes_gigabytes_of_rows_is_refused_before(tmp_path: Path) -> None:
    file = written(tmp_path, accountId=repeated("x" * 70_000, 100_000))
    assert Path(file).stat().st_size < 10_000
    told = reason(file)
    assert told is not None and told.startswith("its rows have 70,0") and told.endswith("land it in smaller files")


def test_a_dictionary_of_moderate_rows_is_read_in_parts(tmp_path: Path) -> None:
    parts = [batch.num_rows for batch in parquet.batches(written(tmp_path, accountId=repeated("x" * 2_000, 100_000)))]
    assert len(parts) > 1 and sum(parts) == 100_000
    positions = [row for batch in parquet.batches(str(tmp_path / "part")) for row in batch["_source_row"].to_pylist()]
    assert positions == [*range(100_000)]


def test_a_file_of_very_many_columns_is_refused(tmp_path: Path) -> None:
    columns = {f"c{number}": pa.array([1]) for number in range(2_001)}
    assert reason(written(tmp_path, **columns)) == "it has 2,003 columns, more than 2,000"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["ab", None, "é"]), [2, 0, 2]),
        (pa.array(["ab", None, "ab"]).dictionary_encode(), [2, 0, 2]),
        (pa.array([["a", "bc"], None, []]), [3, 0, 0]),
        (pa.array([["a"], ["a", "bc"], ["d"]]).slice(1), [3, 1]),
        (pa.array([["a", "bc"], ["d", "e"]], pa.list_(pa.string(), 2)).slice(1), [2]),
        (pa.array([{"a": "x", "b": "yz"}, {"a": None, "b": "y"}]), [3, 1]),
        (pa.array([[("k", "vw")], []], pa.map_(pa.string(), pa.string())), [3, 0]),
        (pa.array([1.5, None]), [16, 16]),
        (pa.nulls(2), [16, 16]),
    ],
)
def test_the_bytes_of_values(array: pa.Array, expected: list[int]) -> None:
    assert sizes.row_sizes(array).tolist() == expected
