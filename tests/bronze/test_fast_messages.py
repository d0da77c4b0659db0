"""Messages in the fast lane's expressions, compared with what the exact lane makes of them, one by one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fraudlake.bronze import contract
from fraudlake.bronze import messages as exact
from fraudlake.errors import UsageError
from fraudlake.settings import Settings, load
from fraudlake_lane import messages
from tests.bronze.test_messages import corpus, value_of

pytestmark = pytest.mark.stream

KAFKA = "value BINARY, key BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
NAMES = ("dt", "accountId", "amount", "alert", "transaction_id")
NOW = datetime(2026, 3, 7, tzinfo=UTC)
STRICTER = {
    "text after the object",
    "two objects",
    "a key twice",
    "a key twice, inside a field",
    "account as fraction",
    "account as object",
    "account as a number with a fraction of zero",
    "half a surrogate pair in the account",
    "bytes that are not UTF-8",
    "dt as epoch milliseconds in text",
    "the producer's own id as a list",
}
"""Messages that only the exact lane quarantines."""
OTHERWISE = {
    "field names in another case",
    "all field names in another case",
    "ts in another case",
    "amount beyond a double",
    "dt in milliseconds with a fraction: finer than a microsecond is cut off",
}
"""Messages of which the fast lane misses a field, rounds the time, or has another amount that is none."""


def fast(spark: Any, values: list[bytes | None], settings: Settings) -> list[dict[str, Any]]:
    rows = [(value, None, "t", 0, offset, NOW) for offset, value in enumerate(values)]
    bronze = messages.bronze(spark.createDataFrame(rows, KAFKA), settings)
    bronze = bronze.withColumn("dt", bronze["dt"].cast("double")).drop("date", "_appended")
    return [row.asDict() for row in bronze.orderBy("_offset").collect()]


def parsed(value: bytes | None, settings: Settings) -> dict[str, Any]:
    fields = contract.make(settings.columns)
    row = dict(zip(exact.columns_of(fields), exact.parse(value, fields), strict=True))
    return row | {"dt": None if row["dt"] is None else row["dt"] / 1e6}


def test_the_fast_lane_reads_what_the_exact_lane_reads(spark: Any) -> None:
    cases = [parameter.values[0] for parameter in corpus()]
    values = [value_of(case) for case in cases]
    other = set()
    for case, value, row in zip(cases, values, fast(spark, values, Settings()), strict=True):
        expected = parsed(value, Settings()) | {"_misfits": parsed(value, Settings())["_misfits"] or []}
        if any(row[name] != expected[name] for name in (*NAMES, "_misfits")):
            other.add(case["name"])
    assert sorted(other - STRICTER - OTHERWISE) == []
    assert sorted((STRICTER | OTHERWISE) - other) == []


def test_declared_doubles_are_read_alike(spark: Any) -> None:
    settings = Settings(columns={"score": "double", "shop": {"from": "the $hop", "type": "string"}})
    fields: list[dict[str, Any]] = [
        {"score": 2**53 + 1, "the $hop": "a"},
        {"score": 2**60, "the $hop": "b"},
        {"score": -(2**53) - 1},
        {"score": 2**63 - 1},
    ]
    values: list[bytes | None] = [json.dumps(given).encode() for given in fields]
    for value, row in zip(values, fast(spark, values, settings), strict=True):
        expected = parsed(value, settings)
        assert (row["score"], row["shop"]) == (expected["score"], expected["shop"]), value
        assert row["_misfits"] == (expected["_misfits"] or []), value


def test_declared_fields_within_objects_are_read_alike(spark: Any) -> None:
    settings = Settings(
        columns={
            "shop": {"from": "merchant.id", "type": "string", "nullable": False},
            "items": {"from": "merchant.basket.items", "type": "bigint"},
        }
    )
    fields: list[dict[str, Any]] = [
        {"merchant": {"id": "M1", "basket": {"items": 3}}},
        {"merchant": {"id": None, "basket": None}},
        {"merchant.id": "FLAT", "merchant": {"id": "M1"}},
        {"merchant": {"basket": {"items": "many"}}},
        {},
    ]
    values: list[bytes | None] = [json.dumps(field).encode() for field in fields]
    for value, row in zip(values, fast(spark, values, settings), strict=True):
        expected = parsed(value, settings)
        assert (row["shop"], row["items"]) == (expected["shop"], expected["items"]), value
        assert row["_misfits"] == (expected["_misfits"] or []), value


def test_a_payload_of_other_names_is_refused() -> None:
    messages.require_flinks(load(payload='{"accountId": "accountId"}'))
    with pytest.raises(UsageError, match=r"realtime reads only Flink's own .* \[payload\] names other fields"):
        messages.require_flinks(load(payload='{"dt": {"unit": "seconds"}}'))
