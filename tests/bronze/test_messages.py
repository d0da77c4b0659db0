from __future__ import annotations

import base64
import csv
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fraudlake import tables
from fraudlake.bronze import messages
from fraudlake.bronze.contract import FLINKS, Contract
from fraudlake.settings import Settings
from fraudlake.silver import transactions
from tests.bronze.declared import DECLARED
from tests.conftest import FLINK

JSON = FLINK / "json"
BAD = Path(__file__).parents[2] / "fixtures" / "bad" / "messages.jsonl"
KAFKA = "value BINARY, topic STRING, partition INT, offset BIGINT"
VARIANTS = ("iso", "ltz_iso", "ltz_sql", "pojo", "sql")
FIELDS = ("dt", "accountId", "amount", "alert", "transaction_id", "_rescued_data", "_misfits", "_raw", "_error")


def corpus() -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, BAD.read_text().splitlines())]


def value_of(case: dict[str, Any]) -> bytes | None:
    """A message is given as text (null: a tombstone), as bytes in base64, or as texts to repeat and to join."""
    if "base64" in case:
        return base64.b64decode(case["base64"])
    text = "".join(text * times for text, times in case["repeated"]) if "repeated" in case else case["text"]
    return text if text is None else text.encode()


def row_of(value: bytes | None) -> dict[str, Any]:
    """The columns that a message fills."""
    row = {name: field for name, field in zip(FIELDS, messages.parse(value), strict=True) if field is not None}
    if "dt" in row:
        row["dt"] = datetime.fromtimestamp(row["dt"] / 1e6, UTC).isoformat(timespec="microseconds")
    return row


@pytest.mark.parametrize("case", corpus())
def test_a_bad_message_has_one_known_outcome(case: dict[str, Any]) -> None:
    value, expected = value_of(case), dict(case["row"])
    if "_error" in expected and value is not None:
        expected["_raw"] = value
    assert row_of(value) == expected


@pytest.mark.parametrize("rows", ["tutorial", "twodays_first1000"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_way_in_which_flink_writes_json_gives_the_same_rows(rows: str, variant: str) -> None:
    parsed = [messages.parse(line) for line in (JSON / f"{rows}.{variant}.jsonl").read_bytes().splitlines()]
    expected = []
    for line in (JSON / f"{rows}.pojo.jsonl").read_text().splitlines():
        sent = json.loads(line)
        expected.append((sent["ts"] * 1000, sent["accountId"], sent["amount"], sent["alert"], *[None] * 5))
    assert parsed == expected


TIMES = st.one_of(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).map(str),
    st.from_regex(
        r"[0-9]{4}-(0[0-9]|1[0-3])-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,9})?Z?", fullmatch=True
    ),
)
AMOUNTS = st.one_of(
    st.floats().map(json.dumps), st.integers().map(str), st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{0,20})?", fullmatch=True)
)
ACCOUNTS = st.one_of(st.integers(0, 999).map(str), st.text(max_size=5))
WRITTEN = st.one_of(
    st.tuples(TIMES, ACCOUNTS, AMOUNTS, st.booleans()).map(
        lambda row: f'{{"dt":"{row[0]}","accountId":"{row[1]}","amount":{row[2]},"alert":{json.dumps(row[3])}}}'
    ),
    st.tuples(ACCOUNTS, st.integers(-(10**16), 10**16), AMOUNTS, st.booleans()).map(
        lambda row: f'{{"accountId":"{row[0]}","ts":{row[1]},"amount":{row[2]},"alert":{json.dumps(row[3])}}}'
    ),
)


SPACED = WRITTEN.map(lambda text: text.replace('":', '": ').replace(',"', ', "'))


@pytest.mark.slow
@given(st.lists(st.one_of(WRITTEN, SPACED, WRITTEN.map(lambda text: text + "\n"), WRITTEN.map(lambda text: text[:-1]))))
def test_what_is_parsed_column_by_column_is_what_is_parsed_one_by_one(texts: list[str]) -> None:
    assert_parsed_alike([*(text.encode(errors="surrogatepass") for text in texts), None, b"\xff"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_bad_messages_among_flinks_own_are_parsed_as_they_are_alone(variant: str) -> None:
    lines = (JSON / f"twodays_first1000.{variant}.jsonl").read_bytes().splitlines()
    bad = [value_of(json.loads(line)) for line in BAD.read_text().splitlines()]
    assert_parsed_alike(lines)
    assert_parsed_alike([value for pair in zip(bad, lines, strict=False) for value in pair])


NAMES = [field.name for field in DECLARED.declared]
VALUES = st.one_of(
    st.just("null"), ACCOUNTS.map(json.dumps), AMOUNTS, st.sampled_from(["true", "false"]), TIMES.map(json.dumps)
)
FURTHER = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=3).map(
    lambda fields: "".join(
        f",{json.dumps(name)}: {value}" for name, value in sorted(fields, key=lambda f: NAMES.index(f[0]))
    )
)


@pytest.mark.slow
@given(st.lists(st.tuples(WRITTEN, FURTHER).map(lambda both: f"{both[0][:-1]}{both[1]}}}"), min_size=1))
def test_declared_fields_are_parsed_column_by_column_as_one_by_one(texts: list[str]) -> None:
    assert_parsed_alike([text.encode(errors="surrogatepass") for text in texts], DECLARED)


def test_declared_fields_become_columns_and_misfits_are_named() -> None:
    fields = {"merchantId": 7, "terminal": 7.0, "score": "high", "chip": 1, 'paid "at"': 1000, "shop": "x"}
    row = messages.parse(json.dumps(fields).encode(), DECLARED)
    columns = dict(zip(messages.columns_of(DECLARED), row, strict=True))
    assert [columns[name] for name in ("merchant", "terminal", "score", "chip", "paid_at")] == [
        "7",
        7,
        None,
        None,
        1_000_000,
    ]
    assert columns["_misfits"] == ["score", "chip"]
    assert json.loads(columns["_rescued_data"]) == {"score": "high", "chip": 1, "shop": "x"}


def assert_parsed_alike(values: list[bytes | None], contract: Contract = FLINKS) -> None:
    columns = messages.parse_all(pa.array(values, pa.binary()), contract)
    one_by_one = zip(*(messages.parse(value, contract) for value in values), strict=True)
    for (name, column), expected in zip(columns.items(), one_by_one, strict=True):
        assert column.equals(pa.array(expected, column.type)), (name, column, expected)


@pytest.mark.parametrize("is_flinks", [True, False])
def test_a_message_that_is_too_large_is_a_row_with_the_reason_and_without_its_bytes(is_flinks: bool) -> None:
    line = b'{"accountId": "a", "ts": 1000, "amount": 1.5, "alert": false}'
    large = line.replace(b'"a"', b'"' + b"a" * 2000 + b'"')
    of = replace(FLINKS if is_flinks else DECLARED, largest_value=1000)
    assert_parsed_alike([line, large, None, large, line], of)
    columns = messages.parse_all(pa.array([line, large], pa.binary()), of)
    assert columns["accountId"].to_pylist() == ["a", None]
    assert columns["_raw"].to_pylist() == [None, None]
    assert columns["_error"].to_pylist() == [None, "2,060 bytes, more than 1,000 (the setting max_value_size)"]


def test_the_alerts_among_flinks_messages_are_those_that_flink_lists() -> None:
    lines = (JSON / "twodays_first1000.sql.jsonl").read_bytes().splitlines()
    flagged = [row[:3] for row in map(messages.parse, lines) if row[3]]
    with (JSON / "twodays_alerts.csv").open() as file:
        listed = {(int(row["ts_ms"]) * 1000, row["accountId"], float(row["amount"])) for row in csv.DictReader(file)}
    assert len(flagged) > 0
    assert listed.issuperset(flagged)


@pytest.mark.stream
def test_every_message_becomes_a_bronze_row_with_its_topic_partition_and_offset(spark: Any) -> None:
    good = b'{"ts":1001,"accountId":2,"amount":0.5,"alert":false,"shop":"x"}'
    source = spark.createDataFrame([(good, "t", 1, 7), (b"[]", "t", 0, 8), (None, "t", 0, 9)], KAFKA)

    rows = messages.from_messages(source)

    assert rows.columns == tables.BRONZE_TRANSACTIONS.column_names
    time = datetime(1970, 1, 1, 0, 0, 1, 1000)
    values = {"dt": time, "accountId": "2", "amount": 0.5, "alert": False, "_rescued_data": '{"shop": "x"}'}
    assert [known(row) for row in rows.drop("_ingested_at").collect()] == [
        {**values, "_topic": "t", "_partition": 1, "_offset": 7, "date": time.date()},
        {"_raw": b"[]", "_error": "not an object", "_topic": "t", "_partition": 0, "_offset": 8},
        {"_error": "tombstone", "_topic": "t", "_partition": 0, "_offset": 9},
    ]


def known(row: Any) -> dict[str, Any]:
    """The values of a row that are not null."""
    return {name: value for name, value in row.asDict().items() if value is not None}


@pytest.mark.stream
def test_no_message_is_dropped_between_the_topic_and_silver(spark: Any) -> None:
    cases = [parameter.values[0] for parameter in corpus()]
    rows = [(value_of(case), "t", 0, offset) for offset, case in enumerate(cases)]

    checked = transactions.checked(messages.from_messages(spark.createDataFrame(rows, KAFKA)), Settings())
    valid, quarantined = transactions.valid(checked).collect(), transactions.quarantined(checked).collect()

    assert sorted([row["position"] for row in valid] + [row["_offset"] for row in quarantined]) == [*range(len(cases))]
    unreadable = [row["_offset"] for row in quarantined if row["reasons"] == ["message_is_readable"]]
    assert sorted(unreadable) == [offset for offset, case in enumerate(cases) if "_error" in case["row"]]
    assert [row["_offset"] for row in quarantined if "message_is_readable" in row["reasons"]] == unreadable
