"""Alert windows against an oracle that computes them from all rows together."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.gold import account_daily, account_tiles, alert_windows, gold_tables
from fraudlake.streams import aggregate, groups, refresh
from tests import oracle, plain_lake
from tests.oracle import HOUR, MINUTE, Row, Window, in_event_time
from tests.transactions import MARCH_7, SECOND, id_of, land, silver, time_of

pytestmark = pytest.mark.stream

DAY = 24 * HOUR
GAPS = [0, SECOND, 9 * MINUTE, 10 * MINUTE, 30 * MINUTE, 30 * MINUTE + 1, 5 * HOUR, DAY]
"""Microseconds between two transactions: equal times, a tile, and half an hour, which does not end a session."""


def windows_of(lake: Any, where: str = "true") -> set[Window]:
    return as_windows(lake.read(alert_windows.VIEW).where(where))


def as_windows(rows: Any) -> set[Window]:
    columns = ["kind", "account_id", "number", "unix_micros(window_start)", "unix_micros(window_end)", "transactions"]
    figures = ["round(100 * amount_sum)", "amount_max", "alerts", "state"]
    listed = [tuple(row) for row in rows.selectExpr(*columns, *figures).collect()]
    assert len(listed) == len(set(listed)), "a window is there twice"
    return set(listed)


def raise_alerts(lake: Any, rows: Iterable[Row]) -> None:
    alerts = [{**row._asdict(), "transaction_id": id_of(row), "timestamp": time_of(row)} for row in rows]
    plain_lake.fill(lake.folder, tables.SILVER_ALERTS, *alerts)


def take(lake: Any, rows: list[Row]) -> None:
    """Hand rows that silver holds to the stream of the aggregates, as one micro-batch after the first."""
    (chosen,) = aggregate.streams(lake)
    frame = pd.DataFrame([(row.account_id, row.time) for row in rows], columns=["account_id", "time"])
    batch = lake.session.createDataFrame(frame).withColumn("timestamp", F.expr("timestamp_micros(time)"))
    batch = batch.withColumn("date", F.to_date("timestamp"))
    chosen.write(
        lake, refresh.groups_of(batch, tables.SILVER_TRANSACTIONS, [*gold_tables.GROUPED, gold_tables.CASES]), 1
    )


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


@pytest.mark.long
@pytest.mark.parametrize("many", [groups._MANY, 0], ids=["only touched groups", "most of a day as a whole day"])
def test_windows_updated_batch_by_batch_are_those_of_all_rows(
    lake: Any, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(groups, "_MANY", many)
    monkeypatch.setattr(groups, "_AT_ONCE", 100)  # so that each day is computed on its own
    opened = lake()
    rows = in_event_time(history(7))
    late = random.Random(1).sample(rows, 40)
    early = [row for row in rows if row not in late]
    land(
        opened, early
    )  # more than the first micro-batch holds, and before it in time, as when a table is read in parts
    take(opened, early[180:])
    take(opened, early[:180])
    assert windows_of(opened) == oracle.windows(early)

    land(opened, late)
    take(opened, late)
    assert windows_of(opened) == oracle.windows(rows)
    assert opened.store.count(account_tiles.TABLE) < len(rows)

    once = opened.store.rows(account_tiles.TABLE).to_pylist()
    take(opened, late)  # as a micro-batch is repeated after a crash
    assert sorted(map(str, opened.store.rows(account_tiles.TABLE).to_pylist())) == sorted(map(str, once))


steps = st.tuples(st.sampled_from(["1", "2"]), st.sampled_from(GAPS), st.sampled_from([0.5, 20.25, 600.0]))


@given(
    drawn=st.lists(steps, min_size=1, max_size=12),
    start=st.sampled_from([0, 9 * MINUTE, 23 * HOUR + 59 * MINUTE]),
    times=st.sampled_from([1, 30]),
    seed=st.integers(0, 100),
)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_view_is_what_an_oracle_computes(
    spark: Any, drawn: list[tuple[str, int, float]], start: int, times: int, seed: int
) -> None:
    session, time, rows = spark.newSession(), MARCH_7 + start, []
    for position, (account, gap, amount) in enumerate(drawn * times):
        time += gap
        rows.append(Row(account, time, amount, f"part-{position % 2}", position))
    alerted = random.Random(seed).sample(rows, len(rows) // 4)
    alerts = [{**row._asdict(), "transaction_id": id_of(row), "timestamp": time_of(row)} for row in alerted]
    named = {
        tables.SILVER_TRANSACTIONS.name: session.createDataFrame(silver(random.Random(seed).sample(rows, len(rows)))),
        tables.SILVER_ALERTS.name: session.createDataFrame(
            [(row["transaction_id"], row["account_id"], row["timestamp"]) for row in alerts],
            "transaction_id STRING, account_id STRING, timestamp TIMESTAMP",
        ),
    }
    named[account_tiles.TABLE.name] = account_tiles.account_tiles(*named.values(), rules=())
    names = {name: f"drawn_{name}" for name in named}
    for name, frame in named.items():
        frame.createOrReplaceTempView(names[name])
    view = session.sql(alert_windows.VIEW.query.format(delay=oracle.DELAY, amount="amount", **names))
    assert as_windows(view) == oracle.windows(rows, alerted)
    assert view.where("date <> to_date(window_start)").count() == 0


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_sums(spark: Any) -> None:
    session = spark.newSession()
    rows = [Row("1", MARCH_7 + number * SECOND, 1.7e308, position=number) for number in range(2)]
    named = {
        tables.SILVER_TRANSACTIONS.name: session.createDataFrame(silver(rows)),
        tables.SILVER_ALERTS.name: session.createDataFrame(
            [], "transaction_id STRING, account_id STRING, timestamp TIMESTAMP"
        ),
    }
    named[account_tiles.TABLE.name] = account_tiles.account_tiles(*named.values(), rules=())
    for name, frame in named.items():
        frame.createOrReplaceTempView(name)
    view = session.sql(
        alert_windows.VIEW.query.format(delay=oracle.DELAY, amount="amount", **{name: name for name in named})
    )
    sums = {row["kind"]: row["amount_sum"] for row in view.collect()}
    assert sums == dict.fromkeys(("tumbling", "sliding", "session", "count"), 2e12)


@pytest.mark.long
def test_a_late_row_changes_yesterdays_account_day_and_the_windows_that_it_is_in(lake: Any) -> None:
    opened = lake()
    noon, one_pm, half = MARCH_7 + 12 * HOUR, MARCH_7 + 13 * HOUR, 30 * MINUTE
    in_time = [Row("1", noon, 20.0, position=0), Row("1", one_pm, 30.0, position=1)]
    in_time.append(Row("1", noon + DAY, 40.0, position=2))
    late = Row("1", noon + half, 700.0, position=3)

    def sessions() -> list[tuple[Any, ...]]:
        return sorted(window[3:] for window in windows_of(opened, "kind = 'session' AND date = '2026-03-07'"))

    def day() -> tuple[Any, ...]:
        daily = opened.read(account_daily.TABLE).where("date = '2026-03-07'")
        return tuple(daily.select("transactions", "amount_sum", "amount_max", "alerts").first())

    land(opened, in_time)
    take(opened, in_time)
    assert day() == (2, 50.0, 30.0, 0)
    assert sessions() == [
        (noon, noon + half, 1, 2000, 20.0, 0, "closed"),
        (one_pm, one_pm + half, 1, 3000, 30.0, 0, "closed"),
    ]

    land(opened, [late])
    raise_alerts(opened, [late])
    take(opened, [late])
    assert day() == (3, 750.0, 700.0, 1)
    assert sessions() == [(noon, one_pm + half, 3, 75000, 700.0, 1, "closed")]
    assert windows_of(opened) == oracle.windows([*in_time, late], [late])

    metrics = opened.spark.sql("DESCRIBE HISTORY gold_account_tiles LIMIT 1").first()["operationMetrics"]
    changed = [metrics[f"num_target_rows_{what}"] for what in ("updated", "deleted", "inserted")]
    assert changed == ["0", "0", "1"]


@pytest.mark.long
def test_a_window_is_closed_once_the_watermark_has_passed_it_whatever_the_delay_is(lake: Any) -> None:
    opened = lake()
    rows = [Row("1", MARCH_7 + number * SECOND, 1.0, position=number) for number in range(100)]
    rows.append(Row("2", MARCH_7 + 2 * HOUR, 1.0))
    rows.append(Row("3", MARCH_7 + 2 * HOUR + 99 * SECOND, 1.0))

    def closed(lake: Any) -> dict[str, list[str]]:
        names = ("kind", "account_id")
        rows = lake.read(alert_windows.VIEW).where("state = 'closed' AND kind <> 'sliding'").select(*names).collect()
        return sorted(tuple(row) for row in rows)

    land(opened, rows)
    take(opened, rows)
    assert closed(opened) == [("count", "1"), ("session", "1"), ("tumbling", "1")]
    day = opened.settings.max_out_of_orderness + timedelta(days=1)
    assert closed(lake(max_out_of_orderness=day)) == []


@pytest.mark.long
def test_an_accounts_windows_and_those_of_a_day_are_computed_from_few_files(lake: Any) -> None:
    opened = lake()
    for day in range(3):
        for account in "12":  # a file each, as after clustering
            row = Row(account, MARCH_7 + day * DAY + HOUR, 1.0, f"part-{account}", day)
            land(opened, [row])
            tile = {"account_id": account, "tile_start": time_of(row), "date": time_of(row).date()}
            plain_lake.fill(opened.root, account_tiles.TABLE, tile)

    def files(kind: str, where: str) -> int:
        windows = opened.read(alert_windows.VIEW).drop("state").where(F.col("kind") == kind)
        return len(windows.where(where).inputFiles())

    kinds = ("tumbling", "sliding", "session", "count")
    assert {kind: files(kind, "account_id = '1'") for kind in kinds} == dict.fromkeys(kinds, 3)
    of_day = {kind: files(kind, "date = DATE'2026-03-08'") for kind in kinds}
    # A window may begin on the day before a tile's. A session and a count window may depend on any day.
    assert of_day == {"tumbling": 2, "sliding": 4, "session": 6, "count": 6}
