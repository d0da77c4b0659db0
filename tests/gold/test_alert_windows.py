"""Alert windows, updated batch by batch, against an oracle that computes them from all rows together."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.gold import account_daily, alert_windows
from fraudlake.streams import aggregate
from tests import plain_lake
from tests.oracle import Row, Window, in_event_time, windows
from tests.transactions import MARCH_7, SECOND, id_of, land, time_of

pytestmark = pytest.mark.stream

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
DELAY = 10 * SECOND


def stored_windows(lake: Any, where: str = "true") -> set[Window]:
    rows = lake.read(alert_windows.TABLE).where(where)
    columns = ["kind", "account_id", "number", "unix_micros(window_start)", "unix_micros(window_end)", "transactions"]
    figures = ["round(100 * amount_sum)", "amount_max", "alerts", "state"]
    windows = [tuple(row) for row in rows.selectExpr(*columns, *figures).collect()]
    assert len(windows) == len(set(windows)), "the table holds a window twice"
    return set(windows)


def raise_alerts(lake: Any, rows: Iterable[Row]) -> None:
    alerts = [{**row._asdict(), "transaction_id": id_of(row), "timestamp": time_of(row)} for row in rows]
    plain_lake.fill(lake.folder, tables.SILVER_ALERTS, *alerts)


def take(lake: Any, rows: list[Row], step: str = "alert_windows") -> None:
    """Hand rows that silver holds to a step, as one micro-batch."""
    (chosen,) = (stream for stream in aggregate.streams(lake) if stream.step == step)
    frame = pd.DataFrame([(row.account_id, row.time) for row in rows], columns=["account_id", "time"])
    batch = lake.session.createDataFrame(frame).withColumn("timestamp", F.expr("timestamp_micros(time)"))
    chosen.write(lake, batch.withColumn("date", F.to_date("timestamp")), 0)


def history(seed: int) -> list[Row]:
    """Three accounts around midnight, with ties and gaps of exactly half an hour."""
    draw = random.Random(seed)
    rows = []
    for account, count in (("1", 210), ("2", 130), ("3", 20)):
        time = MARCH_7 + 22 * HOUR
        for i in range(count):
            time += draw.choice([0] * 4 + [MINUTE] * 5 + [9 * MINUTE, 30 * MINUTE, 30 * MINUTE + 1])
            rows.append(Row(account, time, draw.choice([0.5, 20.25, 600.0]), f"part-{i % 3}", i))
    return rows


def test_windows_updated_batch_by_batch_are_those_of_all_rows(lake: Any) -> None:
    opened = lake()
    rows = in_event_time(history(7))
    late = random.Random(1).sample(rows, 40)
    early = [row for row in rows if row not in late]
    land(
        opened, early
    )  # more than the first micro-batch holds, and before it in time, as when a table is read in parts
    take(opened, early[180:])
    take(opened, early[:180])
    assert stored_windows(opened) == windows(early)

    land(opened, late)
    take(opened, late)
    assert stored_windows(opened) == windows(rows)

    once = opened.rows(alert_windows.TABLE).to_pylist()
    take(opened, late)  # as a micro-batch is repeated after a crash
    assert sorted(map(str, opened.rows(alert_windows.TABLE).to_pylist())) == sorted(map(str, once))


@pytest.mark.long
def test_a_late_row_changes_yesterdays_account_day_and_the_windows_that_it_lies_in(lake: Any) -> None:
    opened = lake()
    noon, one_pm, half = MARCH_7 + 12 * HOUR, MARCH_7 + 13 * HOUR, 30 * MINUTE
    in_time = [Row("1", noon, 20.0, position=0), Row("1", one_pm, 30.0, position=1)]
    in_time.append(Row("1", noon + DAY, 40.0, position=2))
    late = Row("1", noon + half, 700.0, position=3)

    def sessions() -> list[tuple[Any, ...]]:
        return sorted(window[3:] for window in stored_windows(opened, "kind = 'session' AND date = '2026-03-07'"))

    def day() -> tuple[Any, ...]:
        daily = opened.read(account_daily.TABLE).where("date = '2026-03-07'")
        return tuple(daily.select("transactions", "amount_sum", "amount_max", "alerts").first())

    land(opened, in_time)
    take(opened, in_time)
    take(opened, in_time, "account_daily")
    assert day() == (2, 50.0, 30.0, 0)
    assert sessions() == [
        (noon, noon + half, 1, 2000, 20.0, 0, "closed"),
        (one_pm, one_pm + half, 1, 3000, 30.0, 0, "closed"),
    ]

    land(opened, [late])
    raise_alerts(opened, [late])
    take(opened, [late])
    take(opened, [late], "account_daily")
    assert day() == (3, 750.0, 700.0, 1)
    assert sessions() == [(noon, one_pm + half, 3, 75000, 700.0, 1, "closed")]
    assert stored_windows(opened) == windows([*in_time, late], [late])

    # The row changes its hour, six sliding windows, its session and its count window, and removes a merged session.
    metrics = opened.spark.sql("DESCRIBE HISTORY gold_alert_windows LIMIT 1").first()["operationMetrics"]
    changed = [metrics[f"num_target_rows_{what}"] for what in ("updated", "deleted", "inserted")]
    assert changed == ["9", "1", "0"]


def test_no_window_is_closed_before_the_watermark_has_passed_it(spark: Any) -> None:
    windows = spark.sql(
        "SELECT kind, transactions, CAST(ended AS TIMESTAMP) AS window_end FROM VALUES "
        "('session', 5, '2026-03-07 10:00:00'), ('count', 100, '2026-03-07 10:00:00'), ('count', 99, '2000-01-01') "
        "AS windows(kind, transactions, ended)"
    )

    def closed(at: str) -> list[bool]:
        return [row[0] for row in windows.select(alert_windows.passed(F.expr(f"timestamp'{at}'"))).collect()]

    assert closed("2026-03-07 09:59:59") == [False, False, False]
    assert closed("2026-03-07 10:00:00") == [True, False, False]
    assert closed("2026-03-07 10:00:01") == [True, True, False]
