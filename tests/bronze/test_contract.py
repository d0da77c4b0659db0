"""The conversions of single columns in docs/how-to/schema-evolution.md; fixtures/bad/files.toml has whole files."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fraudlake.bronze import contract
from tests.bronze.declared import DECLARED


def fitted(timezone: str = "UTC", **columns: Any) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return pa.table(contract.fit(batch, timezone)).to_pylist()


def declared(**columns: Any) -> list[dict[str, Any]]:
    return pa.table(contract.fit(pa.RecordBatch.from_pydict(columns), contract=DECLARED)).to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2.0], pa.float32()),
        pa.array([2], pa.int8()),
        pa.array([2], pa.uint64()),
        pa.array([Decimal("2.00")], pa.decimal128(10, 2)),
        pa.array([2.0]).dictionary_encode(),
    ],
)
def test_an_amount_of_another_number_type_is_taken(values: pa.Array) -> None:
    (row,) = fitted(amount=values)
    assert (row["amount"], row["_rescued_data"]) == (2.0, None)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([7], pa.int32()),
        pa.array([7], pa.int64()),
        pa.array([Decimal(7)], pa.decimal128(5, 0)),
        pa.array([b"7"]),
        pa.array(["7"], pa.large_string()),
        pa.array(["7"]).dictionary_encode(),
    ],
)
def test_an_account_of_another_type_is_taken_as_text(values: pa.Array) -> None:
    (row,) = fitted(accountId=values)
    assert (row["accountId"], row["_rescued_data"]) == ("7", None)


def test_only_the_values_that_do_not_fit_are_rescued() -> None:
    rows = fitted(amount=pa.array([1, None, 2**53 + 1]))
    assert [row["amount"] for row in rows] == [1.0, None, None]
    assert [row["_rescued_data"] for row in rows] == [None, None, '{"amount": 9007199254740993}']


def test_bytes_that_are_no_text_are_rescued_in_base64() -> None:
    rows = fitted(accountId=pa.array([b"7", b"\xff\xfe"]))
    assert [row["accountId"] for row in rows] == ["7", None]
    assert json.loads(rows[1]["_rescued_data"]) == {"accountId": "//4="}


def test_a_name_in_other_case_is_the_columns_where_only_one_has_it() -> None:
    (row,) = fitted(ACCOUNTID=["7"], amount=[1.0], Amount=[2.0])
    assert (row["accountId"], row["amount"]) == ("7", 1.0)
    assert json.loads(row["_rescued_data"]) == {"Amount": 2.0}
    (row,) = fitted(AMOUNT=[1.0], Amount=[2.0])
    assert row["amount"] is None
    assert json.loads(row["_rescued_data"]) == {"AMOUNT": 1.0, "Amount": 2.0}


def test_of_two_columns_of_one_name_neither_is_taken() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["amount", "amount"])
    columns = contract.fit(batch)
    assert columns["amount"].to_pylist() == [None]
    assert json.loads(columns["_rescued_data"][0].as_py()) == {"amount": 1.0, "amount (2)": 2.0}


def test_a_repeated_name_takes_no_name_that_another_column_has() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([number]) for number in (1.5, 2.5, 3.5)], ["x", "x", "x (2)"])
    assert json.loads(contract.fit(batch)["_rescued_data"][0].as_py()) == {"x": 1.5, "x (2)": 3.5, "x (3)": 2.5}


@pytest.mark.parametrize("values", [["2026-03-07T00:00:00Z"], [1772841600000], [datetime(2026, 3, 7).date()]])
def test_a_time_that_is_no_timestamp_is_rescued(values: list[Any]) -> None:
    (row,) = fitted(dt=values)
    assert row["dt"] is None
    assert "2026-03-07" in row["_rescued_data"] or "1772841600000" in row["_rescued_data"]


def test_a_time_beyond_the_range_of_microseconds_is_rescued() -> None:
    rows = fitted(dt=pa.array([0, 2**62], pa.timestamp("ms")))
    assert [row["dt"] is None for row in rows] == [False, True]
    assert [row["_rescued_data"] is None for row in rows] == [True, False]


def test_a_time_outside_the_calendar_is_rescued() -> None:
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    given = [first, first - 1, last, last + 1, 2**63 - 1, -(2**63), None]
    rows = fitted(dt=pa.array(given, pa.timestamp("us", tz="UTC")))
    assert [row["dt"] is not None for row in rows] == [True, False, True, False, False, False, False]
    assert [row["_rescued_data"] is not None for row in rows] == [False, True, False, True, True, True, False]
    assert json.loads(rows[3]["_rescued_data"]) == {"dt": last + 1}


def test_nanoseconds_are_cut_off() -> None:
    (row,) = fitted(dt=pa.array([1_999], pa.timestamp("ns")))
    assert row["dt"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)


def test_times_of_a_flink_elsewhere_are_put_right_and_adjusted_ones_left() -> None:
    # Noon in New York is 17:00 UTC in winter and 16:00 in summer.
    written = [datetime(2026, 3, 7, 17), datetime(2026, 3, 9, 16), None]
    rows = fitted("America/New_York", dt=pa.array(written, pa.timestamp("us")))
    assert [row["dt"] and row["dt"].hour for row in rows] == [12, 12, None]
    rows = fitted("America/New_York", dt=pa.array(written, pa.timestamp("us", tz="UTC")))
    assert [row["dt"] and row["dt"].hour for row in rows] == [17, 16, None]


def test_extra_columns_are_json_whatever_they_hold() -> None:
    place = pa.array(
        [{"country": "NL", "codes": [1, None]}], pa.struct({"country": pa.string(), "codes": pa.list_(pa.int8())})
    )
    (row,) = fitted(
        text=['q"\\\n\u00fc'],
        place=place,
        tags=pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
        nothing=pa.nulls(1),
        infinite=[float("-inf")],
        raw=[b"\x00"],
        cents=pa.array([Decimal("1.10")]),
        flag=[True],
        **{'odd "name"': [1]},
    )
    assert json.loads(row["_rescued_data"]) == {
        "text": 'q"\\\n\u00fc',
        "place": {"country": "NL", "codes": [1, None]},
        "tags": [["k", 1.5]],
        "nothing": None,
        "infinite": "-inf",
        "raw": "AA==",
        "cents": "1.10",
        "flag": True,
        'odd "name"': 1,
    }


FAR = pa.array([2**62, 0, None], pa.timestamp("us"))
NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"\xff\xfea")]
)


@pytest.mark.parametrize(
    ("values", "rescued"),
    [
        (pa.StructArray.from_arrays([FAR], ["t"]), [{"t": 2**62}, {"t": "1970-01-01 00:00:00.000000"}, {"t": None}]),
        (pa.ListArray.from_arrays([0, 1, 1, 3], FAR), [[2**62], [], ["1970-01-01 00:00:00.000000", None]]),
        (pa.ListArray.from_arrays([0, 2], NOT_UTF8), [["//4=", "a"]]),
        (pa.StructArray.from_arrays([NOT_UTF8], ["s"]), [{"s": "//4="}, {"s": "a"}]),
        (FAR.cast(pa.timestamp("us", "Mars/Base")), [2**62, "1970-01-01 00:00:00.000000Z", None]),
        (pa.array([2**62, 5, None], pa.duration("s")), [2**62, "0:00:05", None]),
        (pa.array([[5], None], pa.list_(pa.duration("s"), 1)), [["0:00:05"], None]),
        (
            pa.array([[("k", 2.5), ("l", None)], None], pa.map_(pa.string(), pa.float16())),
            [[["k", 2.5], ["l", None]], None],
        ),
    ],
    ids=["struct", "list", "text in a list", "text in a struct", "zone", "duration", "fixed list", "map"],
)
def test_what_python_cannot_express_is_rescued_at_any_depth(values: pa.Array, rescued: list[Any]) -> None:
    assert [json.loads(row["_rescued_data"])["x"] for row in fitted(x=values)] == rescued


def test_a_struct_may_name_two_fields_alike() -> None:
    (row,) = fitted(x=pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    assert row["_rescued_data"] == '{"x": {"a": 1, "a": 2}}'


def test_rescuing_every_row_is_fast() -> None:
    rows = 200_000
    batch = pa.RecordBatch.from_pydict(
        {
            "accountId": ["7"] * rows,
            "merchant": [f'the "{i % 100}" shop' for i in range(rows)],
            "terminal": list(range(rows)),
        }
    )
    begun = time.process_time()
    contract.fit(batch)
    assert rows / (time.process_time() - begun) > 100_000


def test_declared_columns_are_taken_with_their_types_and_the_rest_is_rescued() -> None:
    (row,) = declared(
        MERCHANTID=["m1"],
        terminal=pa.array([7], pa.int16()),
        score=pa.array([Decimal("1.5")]),
        chip=[True],
        **{'paid "at"': pa.array([1], pa.timestamp("s"))},
        shop=["x"],
    )
    assert (row["merchant"], row["terminal"], row["score"], row["chip"]) == ("m1", 7, 1.5, True)
    assert row["paid_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["_rescued_data"], row["_misfits"]) == ('{"shop": "x"}', None)


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        (pa.array([2**63 - 1, 2**63, None], pa.uint64()), [2**63 - 1, None, None]),
        (pa.array([7.0, 7.5, float("nan"), 2.0**63]), [7, None, None, None]),
        (pa.array([Decimal("7.0"), Decimal("7.5"), None], pa.decimal128(20, 1)), [7, None, None]),
        (pa.array(["7"]), [None]),
        (pa.array([True]), [None]),
    ],
)
def test_what_is_no_integer_of_64_bits_is_a_misfit_of_its_column(values: pa.Array, taken: list[int | None]) -> None:
    rows = declared(terminal=values)
    fits = [given is None or value is not None for given, value in zip(values.to_pylist(), taken, strict=True)]
    assert [row["terminal"] for row in rows] == taken
    assert [row["_misfits"] for row in rows] == [None if value_fits else ["terminal"] for value_fits in fits]
    assert [row["_rescued_data"] is None for row in rows] == fits


def test_a_row_names_all_of_its_misfits() -> None:
    rows = declared(score=["x", None, "y"], chip=[1, 0, None], merchantId=["a", "b", "c"])
    assert [row["_misfits"] for row in rows] == [["score", "chip"], ["chip"], ["score"]]
    assert [row["merchant"] for row in rows] == ["a", "b", "c"]


OF_EIGHT_BYTES = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Nowhere/City")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    *(
        pa.int64(),
        pa.uint64(),
        pa.float64(),
        pa.date64(),
        pa.binary(8),
        pa.list_(pa.int8(), 8),
        pa.list_(pa.float16(), 4),
    ),
]


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Two values of any bits, of any type of eight bytes or a text, perhaps in a struct, a list or a dictionary."""
    if draw(st.booleans()):
        texts = draw(st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=2, max_size=2))
        column = pa.array(texts, pa.binary()).view(draw(st.sampled_from([pa.string(), pa.binary()])))
    else:
        wanted = draw(st.sampled_from(OF_EIGHT_BYTES))
        bits = pa.py_buffer(draw(st.binary(min_size=16, max_size=16)))
        if pa.types.is_fixed_size_list(wanted):
            items = pa.Array.from_buffers(wanted.value_type, 2 * wanted.list_size, [None, bits])
            column = pa.FixedSizeListArray.from_arrays(items, wanted.list_size)
        else:
            column = pa.Array.from_buffers(wanted, 2, [None, bits])
    around = draw(st.sampled_from(["nothing", "struct", "list", "dictionary"]))
    if around == "struct":
        return pa.StructArray.from_arrays([column], ["inner"])
    if around == "list":
        return pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), column)
    if around == "dictionary":
        return pa.DictionaryArray.from_arrays(pa.array([1, 0]), column)
    return column


NAMES = st.sampled_from(["dt", "accountId", "amount", "alert", "merchantId", "terminal", 'paid "at"', "Score", "new"])


@pytest.mark.slow
@given(st.dictionaries(NAMES, columns(), min_size=1), st.sampled_from(["UTC", "America/New_York"]))
def test_no_value_of_a_file_is_lost(given: dict[str, pa.Array], timezone: str) -> None:
    fitted = contract.fit(pa.RecordBatch.from_pydict(given), timezone, DECLARED)
    for array in fitted.values():
        array.validate(full=True)
    rescued = [json.loads(text or "{}") for text in fitted["_rescued_data"].to_pylist()]
    fields = {field.name.lower(): field.column for field in DECLARED.fields}
    for name, values in given.items():
        column = fitted.get(fields.get(name.lower(), ""))
        for row, value in enumerate(values):
            if (value.value if pa.types.is_dictionary(value.type) else value).is_valid:
                assert (column is not None and column[row].is_valid) or rescued[row][name] is not None
