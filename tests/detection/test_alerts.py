"""The detector as a stream, against the oracle and against Flink's own verdict."""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Iterable
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.detection.alerts import alert_id
from tests import oracle
from tests.conftest import FLINK
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, ids_of

pytestmark = pytest.mark.stream


def expected(rows: Iterable[Row]) -> list[tuple[str, str]]:
    pairs = oracle.alerts(rows)
    return sorted((f"{small.source}-{small.position}", f"{large.source}-{large.position}") for small, large in pairs)


def history(seed: int, rows: int, accounts: int) -> list[Row]:
    """Rows in event-time order, with many border cases: bounds, ties, chains of smalls, gaps of exactly a minute."""
    draw = random.Random(seed)
    amounts = [0.01, 0.99, 1.0, 20.0, 500.0, 500.01, 900.0]
    times = sorted(draw.choice([0, 30, 60, 61]) + 60 * draw.randrange(rows // accounts) for _ in range(rows))
    return [
        Row(str(draw.randrange(accounts)), MARCH_7 + time * SECOND, draw.choice(amounts), f"part-{i % 7}", i)
        for i, time in enumerate(times)
    ]


def flinks_rows_and_alerts(spark: Any) -> tuple[list[Row], set[tuple[str, int, float]]]:
    files = spark.read.parquet(str(FLINK / "twodays")).selectExpr(
        "accountId", "unix_micros(dt)", "amount", "_metadata.file_name", "_metadata.row_index"
    )
    with (FLINK / "json" / "twodays_alerts.csv").open() as file:
        alerts = {(row["accountId"], int(row["ts_ms"]), float(row["amount"])) for row in csv.DictReader(file)}
    return [Row(*row) for row in files.collect()], alerts


@pytest.mark.long
def test_in_the_order_of_arrival_it_finds_what_the_oracle_finds(lake: Any) -> None:
    rows = history(seed=1, rows=3000, accounts=40)
    batches = [rows[:1000], rows[1000:1001], rows[1001:]]
    in_order = [row for batch in batches for row in oracle.in_event_time(batch)]
    assert detected(lake(), *(batch[::-1] for batch in batches)) == expected(in_order)
    assert len(expected(in_order)) > 50


def test_in_event_time_order_it_finds_what_flink_found_however_the_input_is_shuffled_and_cut(lake: Any) -> None:
    opened = lake(ordering="event_time", max_out_of_orderness="10 minutes")
    rows, flink = flinks_rows_and_alerts(opened.session)
    draw = random.Random(7)
    shuffled = sorted(rows, key=lambda row: row.time + draw.randrange(600 * SECOND))
    end = Row("end", max(row.time for row in rows) + 601 * SECOND, 20.0, "part-end", 0)
    detected(opened, shuffled[:20_000], shuffled[20_000:20_010], shuffled[20_010:], [end])
    alerts = [
        (row["account_id"], round(row["timestamp"].timestamp() * 1000), row["amount"])
        for row in opened.store.rows(tables.SILVER_ALERTS).to_pylist()
    ]
    assert len(alerts) == len(flink)
    assert set(alerts) == flink
    assert opened.store.count(tables.SILVER_QUARANTINE) == 0


@pytest.mark.long
def test_waiting_rows_of_a_quiet_bucket_are_processed_when_the_streams_watermark_passes(lake: Any) -> None:
    opened = lake(ordering="event_time", max_out_of_orderness="10 seconds", buckets=64)
    small, large = Row("1", MARCH_7, 0.5, position=0), Row("1", MARCH_7 + SECOND, 600.0, position=1)
    others = [Row(str(i), MARCH_7 + 60 * SECOND, 20.0, position=i) for i in range(2, 5)]
    assert detected(opened, [small, large]) == []
    assert detected(opened, others) == [("part-0-0", "part-0-1")]


def test_a_row_later_than_the_bound_goes_to_quarantine_and_not_to_the_detector(lake: Any) -> None:
    opened = lake(ordering="event_time", max_out_of_orderness="10 seconds")
    pair = [Row("1", MARCH_7, 0.5, position=0), Row("1", MARCH_7 + 2 * SECOND, 600.0, position=1)]
    newer = Row("2", MARCH_7 + 60 * SECOND, 20.0, position=2)
    between = Row("1", MARCH_7 + SECOND, 20.0, "kafka:fraud-events/0000000003", 9)
    assert detected(opened, pair, [newer], [between, Row("2", MARCH_7 + 90 * SECOND, 20.0, position=3)]) == [
        ("part-0-0", "part-0-1")
    ]
    (late,) = opened.read(tables.SILVER_QUARANTINE).collect()
    assert (late["reasons"], late["accountId"], late["amount"], late["alert"]) == (["late"], "1", 20.0, False)
    assert (late["_topic"], late["_partition"], late["_offset"], late["_source_file"]) == ("fraud-events", 3, 9, None)
    assert late["dt"].isoformat() == "2026-03-07T00:00:01"


@pytest.mark.long
def test_several_rules_are_applied_in_one_pass_and_named(lake: Any) -> None:
    rules = (
        {"name": "small_then_large", "small_below": 1.0, "large_above": 500.0, "within": "60 s"},
        {"name": "tiny_then_huge", "small_below": 0.1, "large_above": 800.0, "within": "10 m"},
    )
    opened = lake(rules=rules)
    steps_of_1 = [(0, 0.5), (30, 600.0), (100, 0.05), (400, 900.0), (500, 0.05), (520, 900.0)]
    detected(opened, [Row("1", MARCH_7 + s * SECOND, amount, position=i) for i, (s, amount) in enumerate(steps_of_1)])
    rows = opened.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} ORDER BY transaction_id, rule", tables.SILVER_ALERTS
    ).to_pylist()
    assert [(row["rule"], *ids_of(row["evidence"])) for row in rows] == [
        ("small_then_large", "part-0-0", "part-0-1"),
        ("tiny_then_huge", "part-0-2", "part-0-3"),
        ("small_then_large", "part-0-4", "part-0-5"),
        ("tiny_then_huge", "part-0-4", "part-0-5"),
    ]
    assert len({row["alert_id"] for row in rows}) == 4


def test_ids_of_alerts_differ_whatever_a_producers_ids_hold(spark: Any) -> None:
    names = ["a", "1", "a|1", "|", "1|a", "a|", "|1", "|a|", "1||a"]
    pairs = [(first, second) for first in names for second in names]
    rows = spark.createDataFrame([("r", *pair) for pair in pairs], "rule STRING, first STRING, second STRING")
    ids = {(row[1], row[2]): row[3] for row in rows.withColumn("id", alert_id("rule", "first", "second")).collect()}
    assert len(set(ids.values())) == len(pairs)
    # Lakes have alerts of earlier versions, which had the same ids.
    assert ids["a", "1"] == hashlib.sha256(b"r|a|1").hexdigest()[:32]
