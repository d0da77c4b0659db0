"""A backtest over a lake gives the rows that Flink SQL gives, whichever tasks share the accounts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.detection import backtest
from fraudlake.lake import Lake
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.settings import Settings
from tests.match_recognize.test_match_recognize import ANSWERS, QUERIES, table

pytestmark = [pytest.mark.stream, pytest.mark.long]

QUERY = "within_loop_gaps"


def test_a_backtest_finds_what_flink_finds_and_changes_nothing(lake: Callable[..., Lake]) -> None:
    there = lake()
    rows = table("gaps")
    time = rows["timestamp"].cast(pa.timestamp("us", "UTC"))
    silver = tables.SILVER_TRANSACTIONS.schema
    given = {name: rows[name] for name in ("transaction_id", "account_id", "amount", "label")}
    given |= {"timestamp": time, "date": time.cast(pa.date32()), "position": pa.array(range(len(rows)), pa.int64())}
    given |= {
        "source": pa.array(["part-0"] * len(rows)),
        "warnings": pa.nulls(len(rows), silver.field("warnings").type),
    }
    there.writer(tables.SILVER_TRANSACTIONS).write(pa.table([given[field.name] for field in silver], silver), "append")
    version = there.store.version(tables.SILVER_TRANSACTIONS)

    rule = PatternRule(name="loop", sql=QUERIES[QUERY][1])
    report, found = backtest.backtest(there, rule, date(2026, 1, 1), None)

    flinks = [json.loads(row) for row in ANSWERS[QUERY]]
    ours = [json.loads(row["measures"]) for row in found.collect()]
    assert sorted((row["accountId"], row["f"], row["l"], str(row["n"])) for row in ours) == sorted(
        tuple(row[:4]) for row in flinks
    )
    assert (report.alerts, report.transactions) == (len(flinks), len(rows))
    assert report.alerts > 0
    assert backtest.backtest(there, rule, date(2026, 1, 2), None)[0].transactions == 0
    assert there.store.version(tables.SILVER_TRANSACTIONS) == version


def test_a_key_that_is_nan_is_evaluated_and_one_that_is_null_is_not(spark: Any) -> None:
    rule = SmallThenLargeRule(name="pair", entity="rate", small_below=1, large_above=500, within=timedelta(minutes=1))
    settings = Settings(columns={"rate": "double"}, entities={"rate": "rate"})
    schema = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns).schema
    rows = [
        {"transaction_id": f"{key}{amount}", "account_id": "A", "timestamp": datetime(2026, 3, 7), "amount": amount}
        | {"source": "part-0", "position": position, "rate": key}
        for key in (math.nan, None)
        for position, amount in enumerate((0.5, 900.0))
    ]
    silver = spark.createDataFrame(pa.Table.from_pylist(rows, schema))
    found = backtest.alerts(silver, rule, settings, 1).collect()
    assert [(row["entity_key"], row["transaction_id"]) for row in found] == [('"NaN"', "nan900.0")]
