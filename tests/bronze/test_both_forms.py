"""One contract for files and messages: the same value, in a column of a file and in a message, has the same outcome."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from fraudlake.bronze import contract, messages
from fraudlake.settings import Settings

CONTRACT = contract.make(
    Settings(columns={"shop": "string", "terminal": "bigint", "score": "double", "chip": "boolean"}).columns
)
SECONDS = 1_772_841_601  # seconds since 1970, in March 2026


class Case(NamedTuple):
    """A value by its key, as JSON and as Arrow; what its column gets, and what is rescued if it does not fit."""

    key: str
    text: str
    values: pa.Array
    taken: Any = None
    rescued: Any = None
    marks: list[str] | None = None


def decimals(text: str, precision: int = 38) -> pa.Array:
    number = Decimal(text)
    return pa.array([number], pa.decimal128(precision, -min(number.as_tuple().exponent, 0)))  # type: ignore[type-var]


def times(ticks: int, unit: str) -> pa.Array:
    return pa.array([ticks], pa.timestamp(unit, "UTC"))


CASES = [
    # Accounts
    Case("accountId", '"7"', pa.array(["7"]), "7"),
    Case("accountId", '" 7 "', pa.array([" 7 "]), " 7 "),
    Case("accountId", '""', pa.array([""]), ""),
    Case("accountId", '"\\u0000"', pa.array(["\0"]), "\0"),
    Case("accountId", '"\\ud83d\\ude00"', pa.array(["\U0001f600"]), "\U0001f600"),
    Case("accountId", "7", pa.array([7]), "7"),
    Case("accountId", "9007199254740993", pa.array([2**53 + 1]), "9007199254740993"),
    Case("accountId", "18446744073709551615", pa.array([2**64 - 1], pa.uint64()), "18446744073709551615"),
    Case("accountId", str(10**30), decimals(str(10**30)), str(10**30)),
    Case("accountId", "9007199254740993.0", decimals("9007199254740993.0"), None, "9007199254740993.0"),
    Case("accountId", "7.5", pa.array([7.5]), None, 7.5),
    Case("accountId", "true", pa.array([True]), None, True),
    Case("accountId", "[7]", pa.array([[7]]), None, [7]),
    Case("accountId", '{"id": 7}', pa.array([{"id": 7}]), None, {"id": 7}),
    Case("accountId", "null", pa.array([None], pa.string())),
    # Amounts
    Case("amount", "19.99", decimals("19.99", 10), 19.99),
    Case("amount", "19.99", pa.array([19.99]), 19.99),
    Case("amount", "5", pa.array([5]), 5.0),
    Case("amount", "-0.0", pa.array([-0.0]), -0.0),
    Case("amount", "0.1", decimals("0.1000000000000000000001"), 0.1),
    Case("amount", "1234567890123.4567", decimals("1234567890123.4567"), 1234567890123.4568),
    Case("amount", "9007199254740992", pa.array([2**53], pa.uint64()), 2.0**53),
    Case("amount", "9007199254740993", pa.array([2**53 + 1]), None, 2**53 + 1),
    Case("amount", "18446744073709551615", pa.array([2**64 - 1], pa.uint64()), None, 2**64 - 1),
    Case("amount", "1152921504606846976", pa.array([2**60]), 2.0**60),
    Case("amount", '"5.0"', pa.array(["5.0"]), None, "5.0"),
    Case("amount", "true", pa.array([True]), None, True),
    Case("AMOUNT", "5.0", pa.array([5.0]), 5.0),
    # Flink's verdict
    Case("alert", "true", pa.array([True]), True),
    Case("Alert", "true", pa.array([True]), True),
    Case("alert", "1", pa.array([1]), None, 1),
    Case("alert", '"true"', pa.array(["true"]), None, "true"),
    # Times
    Case("dt", "1772841601180", times(1_772_841_601_180, "ms"), 1_772_841_601_180_000),
    Case("dt", '"2026-03-07T00:00:01.180000999Z"', times(1_772_841_601_180_000_999, "ns"), 1_772_841_601_180_000),
    Case("dt", "1001", times(1001, "ms"), 1_001_000),
    Case("dt", f"{SECONDS}", times(SECONDS, "ms"), SECONDS * 1000, marks=["dt in seconds"]),
    Case("dt", f"{SECONDS}000000", times(SECONDS * 10**6, "ms"), None, SECONDS * 10**6, ["dt in microseconds"]),
    Case("dt", f"{SECONDS}000000000", times(SECONDS * 10**9, "ms"), None, SECONDS * 10**9, ["dt in nanoseconds"]),
    Case("dt", "true", pa.array([True]), None, True),
    Case("dt", '"2026-03-07"', pa.array(["2026-03-07"]), None, "2026-03-07"),
    # Ids, and declared columns
    Case("transaction_id", "7", pa.array([7]), "7"),
    Case("transaction_id", "[7]", pa.array([[7]]), None, [7]),
    Case("Shop", '"s"', pa.array(["s"]), "s"),
    Case("shop", "7.5", pa.array([7.5]), None, 7.5),
    Case("terminal", "7", pa.array([7], pa.int8()), 7),
    Case("terminal", "7.0", decimals("7.0"), 7),
    Case("terminal", "9007199254740993.0", decimals("9007199254740993.0"), 2**53 + 1),
    Case("terminal", "9223372036854775808", pa.array([2**63], pa.uint64()), None, 2**63),
    Case("terminal", "7.5", pa.array([7.5]), None, 7.5),
    Case("score", "0.29", decimals("0.29", 5), 0.29),
    Case("score", "9007199254740993", pa.array([2**53 + 1]), None, 2**53 + 1),
    Case("chip", "0", pa.array([0], pa.int8()), None, 0),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key} {case.text} {case.values.type}")
def test_a_value_has_the_same_outcome_in_a_file_and_in_a_message(case: Case) -> None:
    message = messages.parse_all(pa.array([f'{{"{case.key}": {case.text}}}'.encode()]), CONTRACT)
    file = contract.fit(pa.RecordBatch.from_arrays([case.values], [case.key]), contract=CONTRACT)
    (column,) = (field.column for field in CONTRACT.fields if field.name.lower() == case.key.lower())
    declared = {field.column for field in CONTRACT.declared}
    misfits = [column] if case.rescued is not None and column in declared else case.marks
    for form in (message, file):
        value = form[column].cast(pa.int64()) if column == "dt" else form[column]
        assert repr(value[0].as_py()) == repr(case.taken)
        rescued = form["_rescued_data"][0].as_py()
        assert (None if rescued is None else json.loads(rescued)) == (
            None if case.rescued is None else {case.key: case.rescued}
        )
        assert form["_misfits"][0].as_py() == misfits


@pytest.mark.parametrize(
    ("keys", "amount", "rescued"),
    [
        (["AMOUNT"], 1.5, None),
        (["amount", "AMOUNT"], 1.5, {"AMOUNT": 2.5}),
        (["AMOUNT", "amount"], 2.5, {"AMOUNT": 1.5}),
        (["AMOUNT", "Amount"], None, {"AMOUNT": 1.5, "Amount": 2.5}),
    ],
)
def test_a_key_in_another_case_counts_if_it_is_the_only_one(
    keys: list[str], amount: float | None, rescued: dict[str, float] | None
) -> None:
    values = dict(zip(keys, (1.5, 2.5), strict=False))
    message = messages.parse_all(pa.array([json.dumps(values).encode()]))
    file = contract.fit(pa.RecordBatch.from_pydict({key: [value] for key, value in values.items()}))
    for form in (message, file):
        assert form["amount"].to_pylist() == [amount]
        assert form["_rescued_data"].to_pylist() == [None if rescued is None else json.dumps(rescued)]
