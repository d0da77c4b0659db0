from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fraudlake.bronze import parquet
from tests.conftest import FLINK

UTC_VARIANTS = [
    "int96",
    "int64_micros",
    "int64_millis",
    "int64_micros_utc",
    "ltz_int64_micros",
    "avro_timestamp_millis",
]


def read(path: Path, timezone: str = "UTC") -> pa.Table:
    return pa.Table.from_batches(parquet.batches(str(path), timezone))


def written(tmp_path: Path, **columns: object) -> Path:
    path = tmp_path / "part-0"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("variant", UTC_VARIANTS)
def test_every_encoding_that_flink_writes_gives_the_same_instants(variant: str) -> None:
    (file,) = (FLINK / "tutorial" / variant).iterdir()
    rows = read(file).to_pylist()
    assert rows[0]["dt"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [row["dt"].microsecond // 1000 for row in rows] == list(range(10))
    assert [row["accountId"] for row in rows] == ["1", "2", "2", "3", "1", "1", "4", "4", "3", "3"]
    assert [row["_source_row"] for row in rows] == list(range(10))
    assert {row["_rescued_data"] for row in rows} == {None}


@pytest.mark.parametrize("variant", ["int96_jvm_newyork", "int64_micros_jvm_newyork"])
def test_the_zone_of_flinks_jvm_puts_its_times_right(variant: str) -> None:
    (file,) = (FLINK / "tutorial" / variant).iterdir()
    (truth,) = (FLINK / "tutorial" / "int96").iterdir()
    assert read(file)["dt"][0].as_py() == datetime(1970, 1, 1, 5, 0, 1, tzinfo=UTC)
    assert read(file, "America/New_York") == read(truth)


def test_times_marked_as_adjusted_to_utc_are_the_same_in_any_zone() -> None:
    (file,) = (FLINK / "tutorial" / "avro_timestamp_millis").iterdir()
    assert read(file, "America/New_York") == read(file)


def test_a_flipped_bit_is_detected_where_pages_have_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "part-0"
    table = pa.table({"amount": [1.0, 2.0, 3.0]})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[content.index(bytes(7) + b"\x40") + 6] ^= 1  # makes another number of 2.0
    path.write_bytes(content)
    assert "CRC" in str(parquet.inspect(str(path))[1])


def test_a_column_that_the_contract_does_not_name_is_rescued(tmp_path: Path) -> None:
    path = written(tmp_path, accountId=["1", "2"], amount=[1.0, 2.0], merchant=["a", None])
    rows = read(path).to_pylist()
    assert [json.loads(row["_rescued_data"]) for row in rows] == [{"merchant": "a"}, {"merchant": None}]
    assert [row["amount"] for row in rows] == [1.0, 2.0]
    assert [row["dt"] for row in rows] == [None, None]


def test_texts_within_other_columns_are_read_from_several_row_groups(tmp_path: Path) -> None:
    texts = [f"text {row % 3}" for row in range(10)]
    dictionary = pa.array(texts).dictionary_encode()
    nested = {
        "struct": pa.StructArray.from_arrays([pa.array(texts)], ["id"]),
        "dictionary": pa.StructArray.from_arrays([dictionary], ["id"]),
        "list": pa.array([[text] for text in texts]),
        "map": pa.array([[(text, text)] for text in texts], pa.map_(pa.string(), pa.string())),
    }
    path = tmp_path / "part-0"
    pq.write_table(pa.table({"accountId": texts, **nested}), path, row_group_size=4)
    rows = read(path).to_pylist()
    assert [row["_source_row"] for row in rows] == list(range(10))
    assert [row["accountId"] for row in rows] == texts
    for row, text in zip(rows, texts, strict=True):
        id_ = {"id": text}
        rescued = {"struct": id_, "dictionary": id_, "list": [text], "map": [[text, text]]}
        assert json.loads(row["_rescued_data"]) == rescued


@pytest.mark.parametrize("vectors", [[[1.5, 2.0], None], [None, [1.5, 2.0]], [None, None]])
def test_a_vector_of_fixed_size_may_be_null(tmp_path: Path, vectors: list[list[float] | None]) -> None:
    embedding = pa.array(vectors, pa.list_(pa.float64(), 2))
    tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float64(), [2]), embedding)
    path = written(
        tmp_path,
        accountId=["1", "2"],
        nested=pa.array([{"in": it} for it in vectors], pa.struct([("in", embedding.type)])),
        embedding=embedding,
        tensor=tensor,
    )
    assert parquet.inspect(str(path)) == (2, None)
    rescued = [json.loads(text) for text in read(path)["_rescued_data"].to_pylist()]
    assert rescued == [{"nested": {"in": it}, "embedding": it, "tensor": it} for it in vectors]


def test_a_value_of_another_type_is_rescued_and_its_column_null(tmp_path: Path) -> None:
    rows = read(written(tmp_path, accountId=["1"], amount=["12,50"])).to_pylist()
    assert rows[0]["amount"] is None
    assert json.loads(rows[0]["_rescued_data"]) == {"amount": "12,50"}


def test_narrower_numbers_are_widened(tmp_path: Path) -> None:
    path = written(tmp_path, accountId=pa.array([7], pa.int64()), amount=pa.array([0.5], pa.float32()))
    assert read(path).select(["accountId", "amount"]).to_pylist() == [{"accountId": "7", "amount": 0.5}]


def test_a_readable_file_is_counted(tmp_path: Path) -> None:
    assert parquet.inspect(str(written(tmp_path, amount=[1.0, 2.0]))) == (2, None)


def test_a_file_that_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    good = written(tmp_path, amount=[float(i) for i in range(10_000)]).read_bytes()
    damaged = bytearray(good)
    damaged[100:2000] = bytes(1900)
    cases = {"empty": b"", "text": b"dt,amount\n1,2\n", "truncated": good[:-100], "damaged": bytes(damaged)}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
    reasons = {name: parquet.inspect(str(tmp_path / name))[1] for name in cases}
    assert reasons["empty"] == "the file is empty (0 bytes)"
    assert all(reasons.values()), reasons
    assert parquet.inspect(str(tmp_path / "gone")) == (0, "the file is gone")


(WHOLE,) = (FLINK / "tutorial" / "int96").iterdir()
PLACES = st.integers(0, WHOLE.stat().st_size - 1)


@given(st.dictionaries(PLACES, st.integers(0, 255), max_size=5), st.tuples(PLACES, PLACES))
def test_whatever_is_damaged_in_a_file_it_has_rows_or_a_reason(bytes_: dict[int, int], gap: tuple[int, int]) -> None:
    content = bytearray(WHOLE.read_bytes())
    for at, byte in bytes_.items():
        content[at] = byte
    rows, reason = parquet.inspect(pa.py_buffer(bytes(content[: min(gap)] + content[max(gap) :])))
    assert (rows == 0 and len(reason.splitlines()) == 1) if reason is not None else rows >= 0
