"""What each of Arrow's types becomes, as docs/how-to/ingestion.md says; a type that the page lacks fails here."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fraudlake.bronze import contract
from fraudlake.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ingestion.md"
COLUMNS = ("string", "double", "bigint", "boolean", "timestamp")
CONTRACT = contract.make(Settings(columns={f"as_{name}": {"type": name} for name in COLUMNS}).columns)
OF_FLINK = {"string": "accountId", "double": "amount", "boolean": "alert", "timestamp": "dt"}
ID = UUID("fb82dbd2-f0f6-464a-bcf2-82b870088e4f")
SECOND = datetime(2026, 3, 7, 12, 0, 1, tzinfo=UTC)
TIMED = datetime(2026, 3, 7, 12, 0, 1)


def extension(kind: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


def dictionary(values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), values)


def numbered(kind: pa.DataType) -> tuple[list[pa.Array], dict[str, Any]]:
    return [pa.array([7, None], kind)], {"string": "7", "double": 7.0, "bigint": 7}


def decimals(make: Any) -> tuple[list[pa.Array], dict[str, Any]]:
    return [pa.array([Decimal(7), None], make(5, 0))], {"string": "7", "double": 7.0, "bigint": 7}


def rescued(*values: pa.Array) -> tuple[list[pa.Array], dict[str, Any]]:
    return list(values), {}


TEXT = {"string": "7"}
# By the name of the type: a value and a null of it (of the same value in all arrays), and what becomes of the value.
SAMPLES: dict[str, tuple[list[pa.Array], dict[str, Any]]] = {
    "bool": ([pa.array([True, None])], {"boolean": True}),
    **{
        f"{sign}int{bits}": numbered(getattr(pa, f"{sign}int{bits}")())
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{
        name: ([pa.array([7.0, None], kind)], {"double": 7.0, "bigint": 7})
        for name, kind in {"half_float": pa.float16(), "float": pa.float32(), "double": pa.float64()}.items()
    },
    **{f"decimal{bits}": decimals(getattr(pa, f"decimal{bits}")) for bits in (32, 64, 128, 256)},
    "string": ([pa.array(["7", None])], TEXT),
    "large_string": ([pa.array(["7", None], pa.large_string())], TEXT),
    "string_view": ([pa.array(["7", None], pa.string_view())], TEXT),
    "binary": ([pa.array([b"7", None])], TEXT),
    "large_binary": ([pa.array([b"7", None], pa.large_binary())], TEXT),
    "binary_view": ([pa.array([b"7", None], pa.binary_view())], TEXT),
    "fixed_size_binary": ([pa.array([b"7", None], pa.binary(1))], TEXT),
    "timestamp": (
        [
            pa.array([TIMED, None], pa.timestamp(unit, zone))
            for unit in ("s", "ms", "us", "ns")
            for zone in (None, "UTC")
        ],
        {"timestamp": SECOND},
    ),
    "date32": rescued(pa.array([date(2026, 3, 7), None])),
    "date64": rescued(pa.array([date(2026, 3, 7), None], pa.date64())),
    "time32": rescued(pa.array([time(12), None], pa.time32("s"))),
    "time64": rescued(pa.array([time(12), None], pa.time64("us"))),
    "duration": rescued(pa.array([7, None], pa.duration("s"))),
    "interval_month_day_nano": rescued(pa.array([(1, 2, 3), None], pa.month_day_nano_interval())),
    "list": rescued(pa.array([["7"], None])),
    "large_list": rescued(pa.array([["7"], None], pa.large_list(pa.string()))),
    "fixed_size_list": rescued(pa.array([["7"], None], pa.list_(pa.string(), 1))),
    "list_view": rescued(pa.array([["7"], None], pa.list_view(pa.string_view()))),
    "large_list_view": rescued(pa.array([["7"], None], pa.large_list_view(pa.string()))),
    "struct": rescued(pa.array([{"a": "7"}, None])),
    "map": rescued(pa.array([[("a", 7)], None], pa.map_(pa.string(), pa.int8()))),
    "sparse_union": rescued(
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([7, 7]), pa.array(["a", None])])
    ),
    "dense_union": rescued(
        pa.UnionArray.from_dense(
            pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([7]), pa.array(["a"]).filter([True])]
        )
    ),
    "dictionary": (
        [
            *(dictionary(pa.array(["7"], kind)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
            pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint32()), pa.array(["7", None]), ordered=True),
        ],
        TEXT,
    ),
    "run_end_encoded": (
        [pc.run_end_encode(pa.array([None, "7", None, None])).slice(1, 2), pc.run_end_encode(pa.array(["7", None]))],
        TEXT,
    ),
    "arrow.bool8": ([extension(pa.bool8(), pa.array([2, None], pa.int8()))], {"boolean": True}),
    "arrow.json": (
        [extension(pa.json_(kind), pa.array(["7", None], kind)) for kind in (pa.string(), pa.string_view())],
        TEXT,
    ),
    "arrow.uuid": (
        [
            extension(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16))),
            dictionary(extension(pa.uuid(), pa.array([ID.bytes], pa.binary(16)))),
        ],
        {"string": str(ID)},
    ),
    "arrow.opaque": ([extension(pa.opaque(pa.string(), "money", "a vendor"), pa.array(["7", None]))], TEXT),
    "arrow.fixed_shape_tensor": rescued(
        extension(pa.fixed_shape_tensor(pa.int8(), [1]), pa.array([[7], None], pa.list_(pa.int8(), 1)))
    ),
}
"""Types of Arrow's own and its canonical extension types."""
WITHOUT_ARRAYS = {"na", "interval_months", "interval_day_time"}
"""Null has no value, and Python can make none of the others."""


def documented() -> dict[str, dict[str, str]]:
    """The table of the page: by type, what becomes of it in a column of each type."""
    section = PAGE.read_text().split("## Arrow's types")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    return {
        name: dict(zip(COLUMNS, cells.split(" | "), strict=True))
        for names, cells in rows
        for name in re.findall(r"`([\w.]+)`", names)
    }


def extensions_of_pyarrow() -> set[str]:
    """The extension types that pyarrow has classes for, but those that a program derives its own from."""
    names = {name for name in dir(pa) if isinstance(getattr(pa, name), type)}
    types = {name for name in names if issubclass(getattr(pa, name), pa.BaseExtensionType)}
    words = (re.findall("[A-Z][a-z]+8?", name)[:-1] for name in types - {"BaseExtensionType", "ExtensionType"})
    return {f"arrow.{'_'.join(word).lower()}" for word in words} - {"arrow.unknown_extension"}


def test_the_page_names_every_type_that_pyarrow_knows() -> None:
    types = {name.removeprefix("Type_").lower() for name in dir(pa.lib) if name.startswith("Type_")}
    assert types | extensions_of_pyarrow() == set(documented())
    assert set(documented()) == set(SAMPLES) | WITHOUT_ARRAYS


@pytest.mark.parametrize("name", SAMPLES)
def test_a_value_of_a_type_becomes_what_the_page_says(name: str) -> None:
    samples, taken = SAMPLES[name]
    cells = documented()[name]
    possible = {column for column, cell in cells.items() if cell != "—"}
    certain = {column for column in possible if cells[column] not in ("as the values in it", "as its storage")}
    assert certain <= set(taken) <= possible
    for values in samples:
        for kind in COLUMNS:
            column, value = f"as_{kind}", taken.get(kind)
            batch = pa.RecordBatch.from_pydict({column: values})
            first, second = pa.table(contract.fit(batch, contract=CONTRACT)).to_pylist()
            assert first[column] == value
            assert first["_misfits"] == ([column] if value is None else None)
            assert (first["_rescued_data"] is None) == (value is not None)
            assert second[column] is None


@pytest.mark.parametrize("name", SAMPLES)
def test_flinks_own_fields_take_what_declared_columns_of_their_type_take(name: str) -> None:
    samples, taken = SAMPLES[name]
    for values in samples:
        for kind, field in OF_FLINK.items():
            first = pa.table(contract.fit(pa.RecordBatch.from_pydict({field: values}))).to_pylist()[0]
            assert first[field] == taken.get(kind)
            assert (first["_rescued_data"] is None) == (kind in taken)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_column_that_the_contract_does_not_name_is_rescued_whatever_its_type(name: str) -> None:
    for values in SAMPLES[name][0]:
        first, second = pa.table(contract.fit(pa.RecordBatch.from_pydict({"x": values}))).to_pylist()
        assert json.loads(first["_rescued_data"])["x"] is not None
        assert name.endswith("union") or json.loads(second["_rescued_data"])["x"] is None


def test_null_has_no_value_that_could_be_lost() -> None:
    nothing = pa.RecordBatch.from_pydict({name: pa.nulls(1) for name in OF_FLINK.values()})
    (row,) = pa.table(contract.fit(nothing)).to_pylist()
    assert set(row.values()) == {None}
