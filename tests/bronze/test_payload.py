"""A payload of other names and units: files and messages become the same rows, and what does not fit stays."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from fraudlake.bronze import contract, messages
from fraudlake.bronze.contract import Contract
from fraudlake.settings import Settings


def declared(payload: dict[str, Any], columns: dict[str, Any] | None = None) -> Contract:
    given = Settings(payload=payload, columns=columns or {})  # type: ignore[arg-type]
    return contract.make(given.columns, given.payload)


CARDS = declared(
    {
        "accountId": "card.number",
        "dt": {"from": "ts", "unit": "seconds"},
        "amount": {"from": "amount_minor", "unit": "minor"},
        "alert": "is_fraud",
    },
    {"merchant_id": {"from": "merchant.id", "type": "string"}, "minor": {"from": "amount_minor", "type": "bigint"}},
)
NOON = datetime(2026, 3, 7, 12, 0, 1, tzinfo=UTC)
SECONDS = int(NOON.timestamp())
GOOD: dict[str, Any] = {
    "card": {"number": "C1"},
    "ts": SECONDS,
    "amount_minor": 1999,
    "is_fraud": True,
    "merchant": {"id": "M1"},
}


def as_file(rows: list[dict[str, Any]], of: Contract) -> list[dict[str, Any]]:
    fitted = contract.fit(pa.RecordBatch.from_pylist(rows), contract=of)
    return pa.RecordBatch.from_pydict(fitted).to_pylist()


def as_messages(rows: list[dict[str, Any]], of: Contract) -> list[dict[str, Any]]:
    parsed = messages.parse_all(pa.array([json.dumps(row).encode() for row in rows]), of)
    del parsed["_raw"], parsed["_error"]
    return pa.RecordBatch.from_pydict(parsed).to_pylist()


@pytest.fixture(params=[as_file, as_messages], ids=["file", "messages"])
def read(request: pytest.FixtureRequest) -> Any:
    """Read rows as those of a file, and as messages."""
    return request.param


def row(**others: Any) -> dict[str, Any]:
    """The row that :data:`GOOD` becomes, but for some columns."""
    good = {"dt": NOON, "accountId": "C1", "amount": 19.99, "alert": True, "transaction_id": None}
    return {**good, "merchant_id": "M1", "minor": 1999, "_rescued_data": None, "_misfits": None, **others}


def rescued(rows: list[dict[str, Any]]) -> list[Any]:
    return [one["_rescued_data"] and json.loads(one["_rescued_data"]) for one in rows]


def test_a_payload_of_other_names_and_units_becomes_the_contracts_columns(read: Any) -> None:
    assert read([GOOD], CARDS) == [row()]


def test_what_is_next_to_a_nested_field_is_rescued_in_its_place(read: Any) -> None:
    (one,) = read([{**GOOD, "card": {"number": "C1", "scheme": "visa"}, "shop": 7}], CARDS)
    assert one["accountId"] == "C1"
    assert json.loads(one["_rescued_data"]) == {"card": {"scheme": "visa"}, "shop": 7}


@pytest.mark.parametrize(
    ("given", "columns", "left"),
    [
        ({"card": {"number": 7.5}}, {"accountId": None}, {"card": {"number": 7.5}}),
        ({"card": None}, {"accountId": None}, None),
        ({"card": {"number": None}}, {"accountId": None}, None),
        ({"card": "C1"}, {"accountId": None}, {"card": "C1"}),
        ({"card": [{"number": "C1"}]}, {"accountId": None}, {"card": [{"number": "C1"}]}),
        (
            {"merchant": [{"id": "M1"}]},
            {"merchant_id": None, "_misfits": ["merchant_id"]},
            {"merchant": [{"id": "M1"}]},
        ),
        (
            {"merchant": {"id": {"no": 1}}},
            {"merchant_id": None, "_misfits": ["merchant_id"]},
            {"merchant": {"id": {"no": 1}}},
        ),
        ({"amount_minor": 19.5}, {"amount": 0.195, "minor": None, "_misfits": ["minor"]}, {"amount_minor": 19.5}),
        (
            {"amount_minor": "1999"},
            {"amount": None, "minor": None, "_misfits": ["minor"]},
            {"amount_minor": "1999"},
        ),
        ({"is_fraud": 1}, {"alert": None}, {"is_fraud": 1}),
        ({"ts": "2026-03-07"}, {"dt": None}, {"ts": "2026-03-07"}),
        ({"ts": SECONDS * 1000}, {"dt": None, "_misfits": ["dt in milliseconds"]}, {"ts": SECONDS * 1000}),
        ({"ts": True}, {"dt": None}, {"ts": True}),
    ],
)
def test_what_does_not_fit_stays(read: Any, given: dict[str, Any], columns: dict[str, Any], left: Any) -> None:
    (one,) = read([{**GOOD, **given}], CARDS)
    assert {**one, "_rescued_data": None} == row(**columns)
    assert rescued([one]) == [left]


def test_a_field_that_is_not_there_is_null_and_flinks_own_names_are_rescued(read: Any) -> None:
    flinks = {"accountId": "A1", "dt": "2026-03-07T12:00:01Z", "amount": 5.0, "alert": False}
    (one,) = read([flinks], CARDS)
    assert [one[name] for name in ("accountId", "dt", "amount", "alert")] == [None] * 4
    assert json.loads(one["_rescued_data"]) == flinks


def test_only_the_rows_that_do_not_fit_are_rescued(read: Any) -> None:
    blocked = {**GOOD, "card": {"number": None}, "merchant": {"id": None}, "ts": SECONDS * 10**6}
    rows = read([GOOD, blocked, {**GOOD, "card": {"number": "C2"}}], CARDS)
    assert [one["accountId"] for one in rows] == ["C1", None, "C2"]
    assert rescued(rows) == [None, {"ts": SECONDS * 10**6}, None]


def test_a_name_with_a_dot_comes_before_a_path_and_case_does_not_matter(read: Any) -> None:
    (flat,) = read([{**GOOD, "card.number": "FLAT"}], CARDS)
    assert (flat["accountId"], rescued([flat])) == ("FLAT", [{"card": {"number": "C1"}}])
    (other,) = read([{**GOOD, "card": {"Number": "C1"}, "Merchant": GOOD["merchant"], "merchant": None}], CARDS)
    assert other["accountId"] == "C1"


def test_one_field_may_be_of_two_names(read: Any) -> None:
    of = declared({"accountId": "id", "alert": "id"}, {"id": "string"})
    (one,) = read([{"id": "A1"}], of)
    assert (one["accountId"], one["alert"], one["id"], rescued([one])) == ("A1", None, "A1", [{"id": "A1"}])


class Time(NamedTuple):
    """How ``dt`` is declared, as which JSON and Arrow it comes, and which time that is."""

    form: dict[str, Any]
    json: str
    array: pa.Array
    dt: datetime | None


def late(microseconds: int) -> datetime:
    return NOON.replace(microsecond=microseconds)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


BERLIN = {"pattern": "dd.MM.yyyy HH:mm:ss", "zone": "Europe/Berlin"}
COMPACT = {"pattern": "yyyyMMddHHmmssSSSSSSSSSX"}
TIMES = [
    Time({"unit": "seconds"}, f"{SECONDS}", pa.array([SECONDS], pa.int32()), NOON),
    Time({"unit": "seconds"}, f"{SECONDS}.25", pa.array([SECONDS + 0.25]), late(250_000)),
    Time({"unit": "seconds"}, f"{SECONDS}.1", pa.array([SECONDS + 0.1]), late(100_000)),
    Time({"unit": "seconds"}, f"{SECONDS}.1234569", pa.array([Decimal(f"{SECONDS}.1234569")]), late(123_456)),
    Time({"unit": "seconds"}, "-62135596800", pa.array([-62135596800]), at("0001-01-01T00:00:00+00:00")),
    Time({"unit": "seconds"}, "-62135596801", pa.array([-62135596801]), None),
    Time({"unit": "seconds"}, "1e400", pa.array([float("inf")]), None),
    Time({"unit": "seconds"}, '"2026-03-07T12:00:01Z"', pa.array([NOON], pa.timestamp("ms", "UTC")), NOON),
    Time({"unit": "milliseconds"}, f"{SECONDS}180", pa.array([SECONDS * 1000 + 180]), late(180_000)),
    Time({"unit": "microseconds"}, f"{SECONDS}000007", pa.array([SECONDS * 10**6 + 7]), late(7)),
    Time({"unit": "microseconds"}, str(2**63), pa.array([2**63], pa.uint64()), None),
    Time({"zone": "Europe/Berlin"}, '"2026-03-07 13:00:01"', pa.array(["2026-03-07 13:00:01"]), NOON),
    Time({"zone": "UTC"}, '"2026-03-07T13:00:01+01:00"', pa.array(["2026-03-07T13:00:01+01:00"]), NOON),
    Time({"zone": "UTC"}, '"noon"', pa.array(["noon"]), None),
    Time(BERLIN, '"07.03.2026 13:00:01"', pa.array(["07.03.2026 13:00:01"], pa.large_string()), NOON),
    Time(BERLIN, '"07.07.2026 13:00:00"', pa.array(["07.07.2026 13:00:00"]), at("2026-07-07T11:00:00Z")),
    Time(BERLIN, '"29.03.2026 02:30:00"', pa.array(["29.03.2026 02:30:00"]), at("2026-03-29T01:30:00Z")),
    Time(BERLIN, '"25.10.2026 02:30:00"', pa.array(["25.10.2026 02:30:00"]), at("2026-10-25T00:30:00Z")),
    Time(BERLIN, '"30.02.2026 13:00:00"', pa.array(["30.02.2026 13:00:00"]), None),
    Time(BERLIN, '"07.03.2026 24:00:00"', pa.array(["07.03.2026 24:00:00"]), None),
    Time(BERLIN, '"07.03.2026 13:00"', pa.array(["07.03.2026 13:00"]), None),
    Time(BERLIN, '"07.03.2026 13:00:01\\n"', pa.array(["07.03.2026 13:00:01\n"]), None),
    Time(BERLIN, '"2026-03-07 12:00:01"', pa.array(["2026-03-07 12:00:01"]), None),
    Time(COMPACT, '"20260307130001123456789+01"', pa.array(["20260307130001123456789+01"]), late(123_456)),
]  # fmt: skip


@pytest.mark.parametrize("case", TIMES, ids=lambda case: f"{case.form} {case.json}")
def test_a_time_is_the_same_in_a_file_and_in_a_message(case: Time) -> None:
    of = declared({"dt": {"from": "paid", **case.form}})
    message = messages.parse_all(pa.array([f'{{"paid": {case.json}}}'.encode()]), of)
    file = contract.fit(pa.RecordBatch.from_arrays([case.array], ["paid"]), contract=of)
    assert [form["dt"].to_pylist() for form in (message, file)] == [[case.dt]] * 2
    assert [form["_rescued_data"][0].is_valid for form in (message, file)] == [case.dt is None] * 2


def test_usual_and_unusual_texts_of_one_file_are_read_alike() -> None:
    of = declared({"dt": {"from": "paid", **BERLIN}})
    texts = ["07.03.2026 13:00:01", None, "29.03.2026 02:30:00", "soon", "07.03.2026 13:00:02"]
    read = contract.fit(pa.RecordBatch.from_pydict({"paid": texts}), contract=of)
    expected = [NOON, None, at("2026-03-29T01:30:00Z"), None, NOON.replace(second=2)]
    assert read["dt"].to_pylist() == expected
    assert rescued([{"_rescued_data": one} for one in read["_rescued_data"].to_pylist()]) == [
        None, None, None, {"paid": "soon"}, None
    ]  # fmt: skip


def test_hundredths_are_exact(read: Any) -> None:
    of = declared({"amount": {"from": "minor", "unit": "minor"}})
    rows = read([{"minor": minor} for minor in (1, 29, 1999, -5, 2**53, 2**53 + 1)], of)
    assert [one["amount"] for one in rows] == [0.01, 0.29, 19.99, -0.05, 2**53 / 100, None]
    assert rescued(rows)[-1] == {"minor": 2**53 + 1}


def test_ts_is_dt_only_if_the_payload_does_not_name_it() -> None:
    message = pa.array([b'{"ts": 1000, "accountId": "A1"}'])
    assert messages.parse_all(message, declared({"alert": "x"}))["dt"].is_valid().to_pylist() == [True]
    named = messages.parse_all(message, declared({"dt": "paid"}))
    assert (named["dt"].to_pylist(), named["_rescued_data"].to_pylist()) == ([None], ['{"ts": 1000}'])
