"""Traces: accounts are found wherever a file can hold them, and nothing else is taken for one."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.forget.traces import Search

NAME = "acct-7"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["other", NAME]),
        pa.array([f"Account {NAME} paid"]),
        pa.array([NAME]).dictionary_encode(),
        pa.array([{"inner": {"id": NAME}}]),
        pa.array([["other", NAME]]),
        pa.array([[(NAME, 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("key", [NAME])]], pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.array([b'{"accountId": "acct-7"']),
    ],
    ids=lambda column: str(column.type),
)
def test_an_account_is_found_in_columns_of_any_type(column: pa.Array, tmp_path: Path) -> None:
    pq.write_table(pa.table({"good": ["fine"] * len(column), "bad": column}), tmp_path / "a.parquet")
    assert Search([NAME]).in_file(tmp_path / "a.parquet") == ["bad"]
    assert Search(["acct-8"]).in_file(tmp_path / "a.parquet") == []


def test_an_account_that_another_one_begins_with_is_not_found_in_it() -> None:
    assert not Search([NAME]).is_in(pa.array(["acct-77", "xacct-7", "Account acct-70 paid"]))


@pytest.mark.parametrize("text", ['"17"', "'17'", '{"accountId": 17}', "account_id=17,", "Account 17 paid 5.00"])
def test_a_number_is_a_trace_in_quotes_or_behind_the_word_account(text: str) -> None:
    assert Search(["17"]).is_in(pa.array([text]))


@pytest.mark.parametrize("text", ["paid 17.00", "0.17", "17 s later", '"170"', "account_id=170", "2026-01-17"])
def test_a_number_is_no_trace_where_it_may_be_anything_else(text: str) -> None:
    assert not Search(["17"]).is_in(pa.array([text]))


def test_a_cell_that_is_the_number_is_a_trace() -> None:
    assert Search(["17"]).is_in(pa.chunked_array([["1"], ["17"]]))


def test_an_account_is_found_in_zip_files_texts_and_files_of_no_format(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good", "x" * 100)
        archive.writestr("bad", f"{'x ' * 100}{NAME}")
    (tmp_path / "b").write_bytes(b"\x00\xff\x05" + NAME.encode() + b"\x00")
    (tmp_path / "c.parquet").write_bytes(b"PAR1\x06" + NAME.encode())
    search = Search([NAME, "other"])
    assert [search.in_file(tmp_path / name) for name in ("a.zip", "b", "c.parquet")] == [["bad"], ["bytes"], ["bytes"]]


def test_an_account_of_signs_that_mean_something_in_an_expression_is_found_as_it_is() -> None:
    assert Search(["a.c(*)|"]).is_in(pa.array(["say a.c(*)| twice"]))
    assert not Search(["a.cd"]).is_in(pa.array(["say abcd"]))


METRICS = '{"commitInfo":{"operation":"MERGE","operationMetrics":{"scanTimeMs":"17","numSourceRows":"2"},"x":"%s"}}'
PROPERTIES = '{"metaData":{"id":"a","configuration":{"delta.x":"17"}},"x":"%s"}'
ESCAPED = r'{"commitInfo":{"operationParameters":{"metadata":"{\"configuration\":{\"delta.x\":\"17\"}}"},"x":"%s"}}'
STATS = r'{"add":{"stats":"{\"minValues\":{\"model_version\":\"17\",\"x\":\"%s\"}}"}}'
OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"17"}}\n{"topic":{"17":5},"x":"%s"}'
EVENT = '{"data":{"measures":{"seconds_between":"17"}},"subject":"%s"}'


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("_delta_log", METRICS),
        ("_delta_log", PROPERTIES),
        ("_delta_log", ESCAPED),
        ("_delta_log", STATS),
        ("offsets", OFFSETS),
        ("delivered", EVENT),
    ],
)
def test_a_number_of_something_else_is_no_trace_in_a_file(tmp_path: Path, folder: str, text: str) -> None:
    (tmp_path / folder).mkdir()
    for value, found in (("18", []), ("17", ["bytes"])):
        (tmp_path / folder / value).write_text(text % value)
        assert Search(["17"]).in_file(tmp_path / folder / value) == found


def test_a_models_file_is_full_of_numbers_and_is_searched_for_names_only(tmp_path: Path) -> None:
    (tmp_path / "classifier.json").write_text(f'{{"features":"17","learned":"{NAME}"}}')
    assert Search(["17"]).in_file(tmp_path / "classifier.json") == []
    assert Search(["17", NAME]).in_file(tmp_path / "classifier.json") == ["bytes"]


def test_a_number_of_something_else_is_no_trace_in_a_column(tmp_path: Path) -> None:
    columns = {
        "account_id": ["18", "19"],
        "model_version": ["17", "17"],
        "model": [b'{"features":"17"}', None],
        "measures": pa.array([[("seconds_between", "17")], []], pa.map_(pa.string(), pa.string())),
        "metaData": [{"configuration": "17"}, None],
        "add": [{"stats": '{"minValues":{"model_version":"17","account_id":"18"}}'}, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert Search(["17", NAME]).in_file(tmp_path / "a.parquet") == []
    assert Search(["18", NAME]).in_file(tmp_path / "a.parquet") == ["account_id", "add"]
