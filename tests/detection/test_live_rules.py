"""Thresholds and patterns in the stream, against what a few lines of Python say, and against a backtest."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.delivery import event
from fraudlake.detection import backtest, rule_table
from fraudlake.detection.state import state
from fraudlake.errors import UsageError
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.streams import detect, stream
from tests.detection import plain_rules
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

PAIR = {"name": "small_then_large", "small_below": 1.0, "large_above": 500.0, "within": "60 s"}
BUSY = {"kind": "threshold", "name": "busy", "aggregate": "count", "window": "60 s", "above": 3}
DEAR = {"kind": "threshold", "name": "dear", "aggregate": "sum", "window": "3 transactions", "above": 1000}
PROBE = {
    "kind": "pattern",
    "name": "probe",
    "pattern": "SMALL{2,} LARGE",
    "define": {"SMALL": "SMALL.amount < 1", "LARGE": "LARGE.amount > 500"},
    "within": "3 minutes",
    "skip": "PAST LAST ROW",
    "measures": {"tested": "COUNT(SMALL.amount)"},
}
TRIPLE = {
    "kind": "pattern",
    "name": "triple",
    "pattern": "A B C",
    "define": {"A": "A.amount < 1", "B": "B.amount > A.amount", "C": "C.amount > B.amount"},
    "skip": "TO NEXT ROW",
}
UNUSUAL = {
    "kind": "threshold",
    "name": "unusual",
    "aggregate": "z_score",
    "logarithm": True,
    "window": "10 minutes",
    "above": 1.2345,
}
MOSTLY_SMALL = {
    "kind": "threshold",
    "name": "mostly_small",
    "aggregate": "share",
    "where": "amount > 0.7",
    "window": "6 transactions",
    "below": 0.4,
}
RULES = (BUSY, DEAR, UNUSUAL, MOSTLY_SMALL, PROBE, TRIPLE)
NAMES = {str(fields["name"]) for fields in RULES}


def rule(fields: dict[str, Any]) -> Rule:
    return RULE.validate_python(fields)


def history(seed: int, rows: int, accounts: int) -> list[Row]:
    """Rows in event-time order, some at the same time."""
    draw = random.Random(seed)
    times = sorted(draw.choice([0, 1, 20, 60, 61]) + 45 * draw.randrange(rows // accounts) for _ in range(rows))
    amounts = [0.01, 0.5, 0.99, 1.0, 20.0, 500.0, 500.01, 900.0]
    return [
        Row(str(draw.randrange(accounts)), MARCH_7 + time * SECOND, draw.choice(amounts), "part-0", i)
        for i, time in enumerate(times)
    ]


def expected(rows: Iterable[Row]) -> set[tuple[str, tuple[int, ...]]]:
    """Each alert's rule and, except for thresholds, the positions of its rows; else that of the last one."""
    rows = list(rows)
    return {(fields["name"], positions) for fields in RULES for positions, _ in plain_rules.alerts(fields, rows)}


def raised(lake: Any) -> set[tuple[str, tuple[int, ...]]]:
    rows = lake.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} WHERE rule != 'small_then_large'", tables.SILVER_ALERTS
    ).to_pylist()
    alerts = [
        (row["rule"], [int(part["transaction_id"].rpartition("-")[2]) for part in row["evidence"]], row["kind"])
        for row in rows
    ]
    distinct = {(rule, tuple(rows[-1:] if kind == "threshold" else rows)) for rule, rows, kind in alerts}
    assert len(distinct) == len(alerts)
    return distinct


@pytest.mark.long
@pytest.mark.parametrize("ordering", ["arrival", "event_time"])
def test_rules_of_every_kind_raise_what_plain_python_does_however_the_rows_are_cut(lake: Any, ordering: str) -> None:
    opened = lake(rules=RULES, ordering=ordering, max_out_of_orderness="1 minute")
    rows = history(3, 900, 12)
    end = Row("end", rows[-1].time + 600 * SECOND, 20.0, "part-9", 0)
    # In the order of arrival rows of the same time must come together.
    apart = [number for number in range(1, 900) if rows[number - 1].time < rows[number].time]
    cuts = [0, *apart[40:43], apart[-30], 900]
    detected(opened, *([*rows[first:last]] for first, last in pairwise(cuts)), [end])
    assert raised(opened) == expected(rows)
    assert {rule for rule, _ in expected(rows)} == NAMES


@pytest.mark.long
def test_the_stream_raises_the_alerts_of_a_backtest(lake: Any) -> None:
    opened = lake(rules=RULES, ordering="event_time", max_out_of_orderness="1 minute")
    rows = history(4, 900, 12)
    shuffled = sorted(rows, key=lambda row: row.time + random.Random(row.position).randrange(60 * SECOND))
    end = Row("end", rows[-1].time + 600 * SECOND, 20.0, "part-9", 0)
    detected(opened, shuffled[:450], shuffled[450:], [end])
    for each in opened.settings.rules:
        _, alerts = backtest.backtest(opened, each, None, None)
        tried = sorted(
            (row["transaction_ids"], {name: as_text(value) for name, value in json.loads(row["measures"]).items()})
            for row in alerts.toArrow().to_pylist()
        )
        live = opened.store.query(
            f"SELECT * FROM {tables.SILVER_ALERTS.name} WHERE rule = '{each.name}'", tables.SILVER_ALERTS
        ).to_pylist()
        assert len(tried) > 5
        assert tried == sorted(
            ([part["transaction_id"] for part in row["evidence"]], dict(row["measures"])) for row in live
        )


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.long
def test_an_alert_says_what_raised_it(lake: Any) -> None:
    opened = lake(rules=[PAIR, PROBE])
    amounts = [0.5, 0.25, 600.0]
    detected(opened, [Row("7", MARCH_7 + i * SECOND, amount, position=i) for i, amount in enumerate(amounts)])
    pair, probe = opened.read(tables.SILVER_ALERTS).orderBy("rule").collect()[::-1]
    assert (probe["rule"], probe["kind"], probe["transaction_id"]) == ("probe", "pattern", "part-0-2")
    assert [(part["variable"], part["amount"]) for part in probe["evidence"]] == [
        ("SMALL", 0.5),
        ("SMALL", 0.25),
        ("LARGE", 600.0),
    ]
    assert probe["evidence"][1]["timestamp"].isoformat() == "2026-03-07T00:00:01"
    assert probe["measures"] == {"accountId": "7", "tested": "2"}
    assert probe["explanation"] == (
        "Account 7: SMALL 0.50 at 2026-03-07 00:00:00, SMALL 0.25 at 2026-03-07 00:00:01, "
        "LARGE 600.00 at 2026-03-07 00:00:02 (UTC); accountId 7, tested 2."
    )
    assert (pair["kind"], [part["variable"] for part in pair["evidence"]]) == ("small_then_large", ["SMALL", "LARGE"])
    assert pair["measures"] == {"seconds_between": "1.0"}


@pytest.mark.long
def test_rules_come_change_and_go_on_one_checkpoint(lake: Any) -> None:
    def rows(first: int) -> list[Row]:
        return [Row("1", MARCH_7 + (first + i) * SECOND, 20.0, position=first + i) for i in range(4)]

    busy, busier = rule(BUSY), rule({**BUSY, "above": 9})
    opened = lake()
    detected(opened, rows(0))
    rule_table.apply(opened, [(busy, "live")], "test", None)
    detected(opened, rows(10))  # it has seen the four rows before
    rule_table.apply(opened, [(busier, "live")], "test", None)
    detected(opened, rows(20))  # these are rows 9 to 12 of the window
    rule_table.retire(opened.store, "busy", "test", None)
    assert state(opened).rows_by_rule == {"busy": 12}
    detected(opened, rows(30))
    assert state(opened).rows_by_rule == {}
    rule_table.set_status(opened.store, "busy", "live", "test", None)
    assert state(opened).rows_by_rule == {"busy": 0}
    detected(opened, rows(55))  # of those before, the window holds all but the first ones
    assert state(opened).rows_by_rule == {"busy": 20}
    alerts = opened.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} WHERE rule = 'busy'", tables.SILVER_ALERTS
    ).to_pylist()
    found = {(row["rule_version"], int(row["transaction_id"].rpartition("-")[2])) for row in alerts}
    assert found == {(1, 10), (1, 11), (1, 12), (1, 13), (2, 21), (2, 22), (2, 23)} | {(2, 55 + i) for i in range(4)}


@pytest.mark.long
def test_a_rule_may_name_a_declared_column(lake: Any) -> None:
    terminals = {**BUSY, "column": "terminal", "aggregate": "distinct", "above": 1, "name": "terminals"}
    opened = lake(rules=[terminals], columns={"terminal": "string"})
    land(opened, [Row("1", MARCH_7 + i * SECOND, 20.0, position=i) for i in range(3)])
    name = opened.name_of(tables.SILVER_TRANSACTIONS)
    opened.spark.sql(f"UPDATE {name} SET terminal = CASE position WHEN 0 THEN 'a' WHEN 1 THEN 'a' ELSE 'b' END")
    stream.run(opened, detect.streams(opened), "available-now")
    assert [position for _, (position,) in raised(opened)] == [2]


@pytest.mark.long
def test_an_alert_shows_the_columns_that_its_rule_reads_where_a_backtest_and_a_receiver_see_them(lake: Any) -> None:
    moved = {
        "kind": "pattern",
        "name": "moved",
        "pattern": "A B",
        "define": {"B": "B.country <> A.country AND (B.chip IS NULL OR B.floors > 0) AND B.opened > A.opened"},
        "skip": "PAST LAST ROW",
    }
    far = {**BUSY, "name": "far", "above": 1, "where": "country = 'FR'"}
    columns = {"country": "string", "chip": "boolean", "floors": "bigint", "opened": "timestamp", "unused": "string"}
    opened = lake(rules=[moved, far], columns=columns)
    land(opened, [Row("1", MARCH_7 + i * SECOND, 20.0, position=i) for i in range(3)])
    name = opened.name_of(tables.SILVER_TRANSACTIONS)
    opened.spark.sql(
        f"UPDATE {name} SET country = element_at(array('DE', 'FR', 'FR'), CAST(position AS INT) + 1), "
        "chip = nullif(position = 0, false), floors = position, unused = 'x', "
        "opened = timestamp_seconds(1767225600 + position)"
    )
    stream.run(opened, detect.streams(opened), "available-now")
    alerts = {
        row["rule"]: row
        for row in opened.store.query(f"SELECT * FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS).to_pylist()
    }
    assert [dict(part) for part in alerts["moved"]["evidence_columns"]] == [
        {"chip": "true", "country": "DE", "floors": "0", "opened": "2026-01-01T00:00"},
        {"chip": None, "country": "FR", "floors": "1", "opened": "2026-01-01T00:00:01"},
    ]
    assert alerts["moved"]["explanation"].startswith(
        "Account 1: A 20.00 at 2026-03-07 00:00:00 (chip true, country DE, floors 0, opened 2026-01-01T00:00), "
        "B 20.00 at 2026-03-07 00:00:01 (chip unknown, country FR, floors 1, opened 2026-01-01T00:00:01) (UTC); "
    )
    assert [dict(part) for part in alerts["far"]["evidence_columns"]] == [{"country": "FR"}] * 2
    for each in opened.settings.rules:
        report, _ = backtest.backtest(opened, each, None, None)
        assert report.samples == [alerts[each.name]["explanation"]]
    sent = event.make_event(alerts["far"], "lake")["data"]
    assert [part["columns"] for part in sent["evidence"]] == [{"country": "FR"}] * 2
    assert "evidence_columns" not in sent


@pytest.mark.long
def test_a_rule_that_reads_account_time_and_amount_alone_shows_no_further_columns(lake: Any) -> None:
    opened = lake(rules=[PAIR, PROBE])
    detected(opened, [Row("7", MARCH_7 + i * SECOND, 0.5 + 900 * (i > 1), position=i) for i in range(3)])
    rows = opened.store.query(
        f"SELECT rule, evidence_columns FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
    ).to_pylist()
    assert sorted((row["rule"], row["evidence_columns"]) for row in rows) == [
        ("probe", None),
        ("small_then_large", None),
    ]


@pytest.mark.long
def test_the_state_holds_what_a_later_alert_can_need(lake: Any) -> None:
    opened = lake(rules=RULES, ordering="event_time", max_out_of_orderness="1 second")
    detected(opened, history(5, 600, 12))
    later = [Row(f"x{i}", MARCH_7 + 100_000 * SECOND, 20.0, "part-9", i) for i in range(200)]
    rows = state(opened).rows_by_rule
    assert set(rows) == NAMES
    assert 0 < rows["dear"] <= 24
    detected(opened, later, [Row("end", MARCH_7 + 100_100 * SECOND, 20.0, "part-10", 0)])
    rows = state(opened).rows_by_rule
    assert rows["probe"] == 0
    assert rows["busy"] <= 200


def test_a_rule_whose_rows_are_not_divided_by_account_is_refused(lake: Any) -> None:
    clauses = "ORDER BY dt MEASURES A.amount AS a PATTERN (A B) DEFINE B AS B.amount > 5"
    opened = lake(
        rules=[{"kind": "pattern", "name": "all", "sql": f"SELECT * FROM transactions MATCH_RECOGNIZE ({clauses})"}]
    )
    with pytest.raises(UsageError, match="all: a rule of a stream needs PARTITION BY accountId"):
        detect.streams(opened)
