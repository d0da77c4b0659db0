from __future__ import annotations

import base64
import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality

from fraudlake import tables
from fraudlake.bronze import messages
from fraudlake.settings import Settings
from fraudlake.silver import transactions
from tests.conftest import FLINK

JSON = FLINK / "json"
BAD = Path(__file__).parents[2] / "fixtures" / "bad" / "messages.jsonl"
KAFKA = "value BINARY, topic STRING, partition INT, offset BIGINT"
VARIANTS = ("iso", "ltz_iso", "ltz_sql", "pojo", "sql")
FIELDS = ("dt", "accountId", "amount", "alert", "transaction_id", "_rescued_data", "_raw", "_error")


def corpus() -> list[Any]:
    return [pytest.param(one, id=one["name"]) for one in map(json.loads, BAD.read_text().splitlines())]


def value_of(case: dict[str, Any]) -> bytes | None:
    """A message is given as text (null: a tombstone), as bytes in base64, or as texts to repeat and to join."""
    if "base64" in case:
        return base64.b64decode(case["base64"])
    text = "".join(text * times for text, times in case["repeated"]) if "repeated" in case else case["text"]
    return text if text is None else text.encode()


def row_of(value: bytes | None) -> dict[str, Any]:
    """The columns that a message fills."""
    row = {name: one for name, one in zip(FIELDS, messages.parse(value), strict=True) if one is not None}
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
        told = json.loads(line)
        expected.append((told["ts"] * 1000, told["accountId"], told["amount"], told["alert"], *[None] * 4))
    assert parsed == expected


def test_the_alerts_among_flinks_messages_are_those_that_flink_lists() -> None:
    lines = (JSON / "twodays_first1000.sql.jsonl").read_bytes().splitlines()
    flagged = [row[:3] for row in map(messages.parse, lines) if row[3]]
    with (JSON / "twodays_alerts.csv").open() as file:
        listed = {(int(one["ts_ms"]) * 1000, one["accountId"], float(one["amount"])) for one in csv.DictReader(file)}
    assert len(flagged) > 0
    assert listed.issuperset(flagged)


@pytest.mark.stream
def test_every_message_becomes_a_bronze_row_with_its_place(spark: Any) -> None:
    good = b'{"ts":1001,"accountId":2,"amount":0.5,"alert":false,"shop":"x"}'
    source = spark.createDataFrame([(good, "t", 1, 7), (b"[]", "t", 0, 8), (None, "t", 0, 9)], KAFKA)

    found = messages.from_messages(source)

    assert found.columns == tables.BRONZE_TRANSACTIONS.column_names
    time = datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC)
    nothing = (None,) * 5
    expected = spark.createDataFrame(
        [
            (time, "2", 0.5, False, None, '{"shop": "x"}', None, None, None, None, "t", 1, 7, time.date()),
            (*nothing, None, bytearray(b"[]"), "not an object", None, None, "t", 0, 8, None),
            (*nothing, None, None, "tombstone", None, None, "t", 0, 9, None),
        ],
        found.drop("_ingested_at").schema,
    )
    assert_df_equality(found.drop("_ingested_at"), expected)


@pytest.mark.stream
def test_no_message_is_dropped_between_the_topic_and_silver(spark: Any) -> None:
    cases = [one.values[0] for one in corpus()]
    rows = [(value_of(case), "t", 0, offset) for offset, case in enumerate(cases)]

    checked = transactions.checked(messages.from_messages(spark.createDataFrame(rows, KAFKA)), Settings())
    valid, quarantined = transactions.valid(checked).collect(), transactions.quarantined(checked).collect()

    assert sorted([row["position"] for row in valid] + [row["_offset"] for row in quarantined]) == [*range(len(cases))]
    unreadable = [row["_offset"] for row in quarantined if row["reasons"] == ["message_is_readable"]]
    assert sorted(unreadable) == [offset for offset, case in enumerate(cases) if "_error" in case["row"]]
    assert [row["_offset"] for row in quarantined if "message_is_readable" in row["reasons"]] == unreadable
