"""Thresholds against windows that are computed one row at a time."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from fraudlake.errors import UsageError
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings import Settings
from tests.detection import plain_rules
from tests.match_recognize import flink
from tests.match_recognize.test_match_recognize import table
from tests.oracle import SECOND, Row, in_event_time

FIGURES: tuple[dict[str, Any], ...] = (
    {"aggregate": "share", "where": "amount > 20", "above": 0.45},
    {"aggregate": "stddev", "above": 301.7},
    {"aggregate": "stddev", "logarithm": True, "below": 1.234},
    {"aggregate": "quantile", "quantile": 0.9, "above": 499},
    {"aggregate": "quantile", "quantile": 0.07, "below": 0.6},
    {"aggregate": "last", "above": 400},
    {"aggregate": "last", "where": "amount > 5", "below": 21},
    {"aggregate": "changed", "below": 1},
    {"aggregate": "is_first", "above": 0},
    {"aggregate": "is_first", "where": "amount > 600", "above": 0},
    {"aggregate": "seconds_since_first", "above": 40.5},
    {"aggregate": "seconds_since_last", "below": 1.5},
    {"aggregate": "ratio_to_mean", "above": 2.345},
    {"aggregate": "z_score", "above": 1.789},
    {"aggregate": "z_score", "logarithm": True, "where": "amount > 0.3", "below": -1.234},
)


def alerts(**parameters: object) -> list[tuple[str, float]]:
    rule = ThresholdRule.model_validate({"name": "many", **parameters})
    rows = table("mixed")
    names = rows["transaction_id"].to_pylist()
    found = rule.compile(flink.COLUMNS).evaluate(rows).alerts
    return sorted((names[alert.rows[-1]], alert.measures[rule.aggregate]) for alert in found)


def test_an_alert_is_raised_at_each_row_beyond_the_limit() -> None:
    # SELECT transaction_id, c FROM (SELECT *, COUNT(*) OVER (PARTITION BY accountId ORDER BY dt RANGE BETWEEN
    # INTERVAL '60' SECOND PRECEDING AND CURRENT ROW) AS c FROM transactions) WHERE c > 5, in Flink SQL 2.3
    assert alerts(aggregate="count", window="60 s", above=5) == [("220", 6), ("315", 6), ("333", 6)]


def test_rows_that_the_condition_leaves_out_neither_count_nor_alert() -> None:
    counted = alerts(aggregate="count", window="60 s", where="kind = 'pos' AND amount > 1", above=1)
    rows = table("mixed").to_pylist()
    passing = [row for row in rows if row["kind"] == "pos" and row["amount"] > 1]
    wanted = []
    for row in passing:
        before = row["timestamp"] - timedelta(seconds=60)
        window = [
            other
            for other in passing
            if other["account_id"] == row["account_id"] and before <= other["timestamp"] <= row["timestamp"]
        ]
        wanted += [(row["transaction_id"], len(window))] if len(window) > 1 else []
    assert counted == sorted(wanted)


def drawn(seed: int) -> list[Row]:
    """Rows of five accounts, some at the same time."""
    draw = random.Random(seed)
    amounts = [0.0, -3.5, 0.01, 0.5, 0.99, 20.0, 20.1, 500.0, 500.01, 900.0, draw.uniform(1, 1000)]
    accounts = [str(draw.randrange(5)) for _ in range(400)]
    times = [draw.choice([0, 1, 20, 60]) + 9 * draw.randrange(100) for _ in range(400)]
    return in_event_time(
        Row(account, time * SECOND, draw.choice(amounts), "part-0", number)
        for number, (account, time) in enumerate(zip(accounts, times, strict=True))
    )


def as_table(rows: list[Row]) -> pa.Table:
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(Row._fields)}
    columns["timestamp"] = pa.array(columns.pop("time"), pa.timestamp("us", "UTC"))
    return pa.table(columns)


def evaluated(
    fields: dict[str, Any], rows: list[Row], cuts: list[int], now: int | None = None
) -> list[tuple[int, dict[str, Any]]]:
    """Evaluate a rule part by part; return the position of each alert's last row, and its measures.

    No row of the next part is before ``now``, which is by default the time of its first one.
    """
    compiled = ThresholdRule.model_validate(fields).compile(query_columns({}))
    found: list[tuple[int, dict[str, Any]]] = []
    needed = as_table(rows[:1]).slice(0, 0)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = pa.concat_tables([needed, as_table(rows[begin:end])])
        next_time = rows[min(end, len(rows) - 1)].time
        evaluation = compiled.evaluate(part, len(needed), (), next_time if now is None else now)
        positions = part["position"].to_pylist()
        found += [(positions[alert.rows[-1]], dict(alert.measures)) for alert in evaluation.alerts]
        needed = part.take(pa.array(evaluation.needed))
    return sorted(found, key=lambda alert: alert[0])


@pytest.mark.parametrize("window", ["60 s", "7 transactions"])
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: " ".join(map(str, figure.values())))
def test_an_aggregate_is_that_of_plain_python_however_rows_are_cut(figure: dict[str, Any], window: str) -> None:
    fields = {"kind": "threshold", "name": "many", "window": window, **figure}
    for seed in range(2):
        rows = drawn(seed)
        draw = random.Random(seed)
        # Rows of the same time are in the same micro-batch, as in event-time order.
        apart = [number for number in range(1, len(rows)) if rows[number - 1].time < rows[number].time]
        whole = evaluated(fields, rows, [])
        assert evaluated(fields, rows, sorted(draw.sample(apart, 25))) == whole
        said = [((position,), plain_rules.text(measures[figure["aggregate"]])) for position, measures in whole]
        expected = sorted(plain_rules.alerts(fields, rows))
        assert said == expected
        assert 0 < len(expected) < len(rows)


@pytest.mark.parametrize("aggregate", ["count", "seconds_since_first"])
def test_in_the_order_of_arrival_a_late_row_is_in_the_windows_of_its_time(aggregate: str) -> None:
    fields = {"name": "many", "aggregate": aggregate, "window": "15 s", "above": -1}
    rows = [Row("a", second * SECOND, 1.0, "part-0", number) for number, second in enumerate((30, 10, 40, 20, 41))]
    totals = {position: measures[aggregate] for position, measures in evaluated(fields, rows, [1, 2, 3, 4], 0)}
    expected = {"count": {0: 1, 1: 1, 2: 2, 3: 2, 4: 3}, "seconds_since_first": {2: 10, 3: 10, 4: 11}}
    assert totals == expected[aggregate]


@pytest.mark.parametrize(("limit", "expected"), [(0.6, []), (0.5, [0.6])])
def test_a_sum_is_right_to_a_double_whatever_other_accounts_paid(limit: float, expected: list[float]) -> None:
    amounts = [0.1e9 + number / 7 for number in range(1000)] + [0.1, 0.2, 0.3]
    rows = pa.table(
        {
            "account_id": ["a"] * 1000 + ["b"] * 3,
            "amount": amounts,
            "timestamp": pa.array(range(1003), pa.timestamp("us", "UTC")),
        }
    )
    rule = ThresholdRule(name="spent", aggregate="sum", window=timedelta(hours=1), above=limit)
    alerts = rule.compile(flink.COLUMNS).evaluate(rows).alerts
    assert [alert.measures["sum"] for alert in alerts if alert.rows[-1] >= 1000] == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"aggregate": "sum", "column": "kind", "window": "1 h", "above": 1}, "sum takes a number, and kind is STRING"),
        ({"aggregate": "sum", "column": "amont", "window": "1 h", "above": 1}, "there is no column 'amont'"),
        ({"aggregate": "stddev", "column": "kind", "window": "1 h", "above": 1}, "stddev takes a number, and kind is"),
        (
            {"aggregate": "last", "column": "dt", "window": "1 h", "above": 1},
            "last takes a number, and dt is",
        ),
        ({"aggregate": "changed", "column": "device", "window": "1 h", "above": 0}, "there is no column 'device'"),
        ({"aggregate": "count", "window": "1 h", "above": 1, "where": "kind"}, "line 1, column 1: a condition must be"),
        ({"aggregate": "count", "window": "1 h", "above": 1, "where": "LAST(kind) = 'a'"}, "LAST is not allowed here"),
    ],
)
def test_a_threshold_that_does_not_suit_the_columns_is_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        ThresholdRule.model_validate({"name": "many", **parameters}).compile(flink.COLUMNS)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aggregate": "is_first", "column": "kind"}, "is_first takes no column: leave it out"),
        ({"aggregate": "share"}, "a share is that of a condition: give it as where"),
        ({"aggregate": "quantile"}, "give quantile, such as 0.9, with the aggregate quantile"),
        ({"aggregate": "max", "quantile": 0.9}, "give quantile, such as 0.9, with the aggregate quantile"),
        ({"aggregate": "quantile", "quantile": 1}, "should be less than 1"),
        ({"aggregate": "quantile", "quantile": 0}, "should be greater than 0"),
        ({"aggregate": "mean", "logarithm": True}, "logarithm is for stddev and z_score: leave it out"),
        ({"aggregate": "last", "window": "1 transaction"}, "last looks at earlier transactions: give a window of 2"),
        ({"aggregate": "z_score", "window": "ever"}, "must be a duration such as"),
        ({"aggregate": "fraud_share"}, "should be 'count', 'sum'"),
    ],
)
def test_a_threshold_that_does_not_suit_its_aggregate_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        ThresholdRule.model_validate({"name": "many", "window": "1 h", "above": 1, **fields})
    assert len(refused.value.errors()) == 1


def test_the_json_of_a_rule_has_its_further_fields_only_if_they_are_given() -> None:
    count = ThresholdRule(name="many", aggregate="count", window=timedelta(hours=1), above=1)
    assert list(count.model_dump()) == ["kind", "name", "aggregate", "column", "window", "where", "above", "below"]
    fields = {"aggregate": "z_score", "logarithm": True, "window": "1 h", "above": 3}
    unusual = ThresholdRule.model_validate({"name": "many", **fields})
    assert unusual.model_dump()["logarithm"] is True
    assert ThresholdRule.model_validate_json(unusual.model_dump_json()) == unusual


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"aggregate": "changed", "column": "country", "above": 0}, {3: 1}),
        ({"aggregate": "changed", "column": "country", "below": 1}, {1: 0, 4: 0}),
        ({"aggregate": "changed", "column": "score", "above": 0}, {4: 1}),
        ({"aggregate": "last", "column": "score", "above": 0}, {1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}),
        ({"aggregate": "quantile", "quantile": 0.5, "column": "score", "above": 0.5}, {}),
        ({"aggregate": "stddev", "column": "floors", "above": 0}, dict.fromkeys((1, 2, 3), math.sqrt(2)) | {4: 2}),
        ({"aggregate": "z_score", "column": "floors", "above": 1}, {4: 3 / math.sqrt(2)}),
        ({"aggregate": "share", "where": "country = 'DE'", "below": 0.6}, {3: 0.5, 4: 0.4}),
    ],
)
def test_a_row_without_a_value_neither_counts_nor_is_compared(
    fields: dict[str, Any], expected: dict[int, float]
) -> None:
    columns = {
        "country": ["DE", "DE", None, "FR", "FR"],
        "score": [0.5, None, float("nan"), None, 0.75],
        "floors": [1, 3, None, None, 5],
    }
    rows = pa.table(
        {
            "account_id": ["a"] * 5,
            "amount": [1.0] * 5,
            "timestamp": pa.array([number * SECOND for number in range(5)], pa.timestamp("us", "UTC")),
            **columns,
        }
    )
    declared = {"country": "string", "score": "double", "floors": "bigint"}
    known = query_columns(Settings(columns=declared).columns)
    rule = ThresholdRule.model_validate({"name": "many", "window": "1 h", **fields})
    alerts = rule.compile(known).evaluate(rows).alerts
    found = {alert.rows[-1]: alert.measures[rule.aggregate] for alert in alerts}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"aggregate": "sum", "column": "base_amount", "above": 0}, {0: 40, 2: 100}),
        ({"aggregate": "count", "column": "base_amount", "above": 0}, {0: 1, 2: 2}),
        ({"aggregate": "min", "column": "base_amount", "below": 50}, {0: 40, 2: 40}),
        ({"aggregate": "max", "column": "base_amount", "where": "amount > 1", "above": 0}, {2: 60}),
        ({"aggregate": "count", "where": "base_amount > 50", "above": 0}, {2: 1}),
        ({"aggregate": "count", "where": "NOT base_amount > 50", "above": 0}, {0: 1}),
        ({"aggregate": "count", "above": 0}, {0: 1, 1: 2, 2: 3, 3: 4}),
    ],
)
def test_a_payment_without_a_rate_gets_no_verdict_of_a_rule_on_the_base_amount(
    fields: dict[str, Any], expected: dict[int, float]
) -> None:
    rows = pa.table(
        {
            "account_id": ["a"] * 4,
            "amount": [1.0, 2.0, 3.0, 4.0],
            "base_amount": [40.0, None, 60.0, None],
            "timestamp": pa.array([number * SECOND for number in range(4)], pa.timestamp("us", "UTC")),
        }
    )
    in_euro = Settings.model_validate({"columns": {"currency": "string"}, "currency": {"base": "EUR"}})
    rule = ThresholdRule.model_validate({"name": "many", "window": "1 h", **fields})
    found = rule.compile(query_columns(in_euro.silver_columns)).evaluate(rows).alerts
    assert {alert.rows[-1]: alert.measures[rule.aggregate] for alert in found} == expected


def test_a_lake_of_one_currency_has_no_base_amount() -> None:
    rule = ThresholdRule.model_validate(
        {"name": "many", "window": "1 h", "aggregate": "sum", "column": "base_amount", "above": 1}
    )
    with pytest.raises(UsageError, match="there is no column 'base_amount'"):
        rule.compile(query_columns(Settings().silver_columns))


@pytest.mark.parametrize("limits", [{}, {"above": 1, "below": 2}])
def test_a_threshold_has_one_limit(limits: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a threshold needs either"):
        ThresholdRule.model_validate({"name": "many", "aggregate": "count", "window": "1 h", **limits})


@pytest.mark.parametrize(
    ("window", "duration", "transactions", "written"),
    [
        ("10 minutes", timedelta(minutes=10), None, "600 s"),
        (timedelta(milliseconds=500), timedelta(milliseconds=500), None, "0.5 s"),
        ("20 transactions", None, 20, "20 transactions"),
        ("1 transaction", None, 1, "1 transaction"),
    ],
)
def test_a_window_is_a_duration_or_a_number_of_transactions(
    window: object, duration: timedelta | None, transactions: int | None, written: str
) -> None:
    fields = {"name": "many", "aggregate": "count", "above": 1}
    rule = ThresholdRule.model_validate({**fields, "window": window})
    assert (rule.duration, rule.transactions) == (duration, transactions)
    assert rule.model_dump()["window"] == written
    assert ThresholdRule.model_validate_json(rule.model_dump_json()) == rule


@pytest.mark.parametrize("window", [20, "20", "0 s", timedelta(0), "0 transactions", "-1 transactions", "", None, True])
def test_a_window_of_neither_is_refused(window: object) -> None:
    with pytest.raises(ValueError, match="must be a duration such as '10 minutes', or a number such as"):
        ThresholdRule.model_validate({"name": "many", "aggregate": "count", "above": 1, "window": window})
