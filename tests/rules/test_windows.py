"""Thresholds against windows that are computed one row at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.arrays import Vector
from fraudlake.errors import UsageError
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.rules.windows import Spans, aggregate, of_duration, of_rows
from tests.match_recognize import flink
from tests.match_recognize.test_match_recognize import table

STARTS = np.array([0, 1, 40, 40, 100])
FUNCTIONS = ("count", "sum", "average", "minimum", "maximum", "distinct")


def drawn() -> tuple[np.ndarray, Vector]:
    draw = np.random.default_rng(3)
    times = np.concatenate([np.sort(draw.integers(0, 60, size)) for size in np.diff(STARTS)])
    return times, Vector(draw.integers(-5, 6, 100).astype(float), draw.random(100) < 0.2)


def expected(function: str, values: list[float]) -> float:
    if function in ("count", "distinct"):
        return len(set(values) if function == "distinct" else values)
    of_values = {"sum": sum, "average": lambda them: sum(them) / len(them), "minimum": min, "maximum": max}
    return of_values[function](values) if values else float("nan")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_windows_of_a_duration_hold_its_edge_and_rows_of_the_same_time(function: str) -> None:
    times, column = drawn()
    totals = aggregate(function, column, of_duration(times, STARTS, 10))
    for start, stop in pairwise(STARTS):
        for row in range(start, stop):
            window = [other for other in range(start, stop) if times[row] - 10 <= times[other] <= times[row]]
            values = [column.values[other] for other in window if not column.null[other]]
            np.testing.assert_equal(totals[row], expected(function, values))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_windows_of_rows_end_with_the_row(function: str, count: int) -> None:
    _, column = drawn()
    totals = aggregate(function, column, of_rows(STARTS, count))
    for start, stop in pairwise(STARTS):
        for row in range(start, stop):
            window = range(max(start, row - count + 1), row + 1)
            values = [column.values[other] for other in window if not column.null[other]]
            np.testing.assert_equal(totals[row], expected(function, values))


def test_a_sum_of_cents_is_that_of_its_window_alone() -> None:
    column = Vector(np.array([1e9, 0.1, 0.2, 0.3]))
    assert aggregate("sum", column, of_rows(np.array([0, 4]), 2))[-1] == 0.5


@pytest.mark.parametrize(
    "amounts",
    [
        lambda draw, count: np.round(draw.lognormal(3, 2, count), 2),
        lambda draw, count: np.round(draw.normal(0, 1000, count), 2),
        lambda draw, count: draw.normal(0, 1, count) * 10.0 ** draw.integers(-300, 300, count),
        lambda draw, count: draw.choice([0.0, 5e-324, 2.0**-90, 0.1, 0.7, 1e9, 2.0**60, 1e300], count),
    ],
    ids=["payments", "of both signs", "of any size", "at the ends"],
)
def test_sums_are_right_to_a_double(amounts: Callable[[np.random.Generator, int], np.ndarray]) -> None:
    draw = np.random.default_rng(8)
    values = amounts(draw, 2000)
    low = draw.integers(0, 2000, 2000)
    high = np.minimum(low + draw.integers(1, 60, 2000), 2000)
    totals = aggregate("sum", Vector(values), Spans(low, high))
    np.testing.assert_equal(totals, [math.fsum(values[a:b]) for a, b in zip(low, high, strict=True)])


@pytest.mark.parametrize("function", ["sum", "average"])
def test_infinities_and_what_is_no_number_count_in_their_own_windows_alone(function: str) -> None:
    values = [
        1.0,
        float("inf"),
        2.0,
        3.0,
        float("-inf"),
        float("inf"),
        4.0,
        float("nan"),
        5.0,
        6.0,
        1e308,
        1e308,
        7.0,
        8.0,
    ]
    spans = of_rows(np.array([0, len(values)]), 2)
    totals = aggregate(function, Vector(np.array(values)), spans)
    windows = [values[max(0, row - 1) : row + 1] for row in range(len(values))]
    np.testing.assert_equal(totals, [expected(function, window) for window in windows])


def alerts(**parameters: object) -> list[tuple[str, float]]:
    rule = ThresholdRule.model_validate({"name": "many", **parameters})
    rows = table("mixed")
    names = rows["transaction_id"].to_pylist()
    found = rule.compile(flink.COLUMNS).evaluate(rows).alerts
    return sorted((names[alert.rows[-1]], alert.measures[rule.aggregate]) for alert in found)


def test_an_alert_is_raised_at_each_row_beyond_the_limit() -> None:
    # SELECT transaction_id, c FROM (SELECT *, COUNT(*) OVER (PARTITION BY accountId ORDER BY dt RANGE BETWEEN
    # INTERVAL '60' SECOND PRECEDING AND CURRENT ROW) AS c FROM transactions) WHERE c > 5, in Flink SQL 2.3
    assert alerts(aggregate="count", last="60 s", above=5) == [("220", 6), ("315", 6), ("333", 6)]


def test_rows_that_the_condition_leaves_out_neither_count_nor_alert() -> None:
    counted = alerts(aggregate="count", last="60 s", where="kind = 'pos' AND amount > 1", above=1)
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
    rule = ThresholdRule(name="spent", aggregate="sum", last=timedelta(hours=1), above=limit)
    alerts = rule.compile(flink.COLUMNS).evaluate(rows).alerts
    assert [alert.measures["sum"] for alert in alerts if alert.rows[-1] >= 1000] == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"aggregate": "sum", "column": "kind", "last": "1 h", "above": 1}, "sum takes a number, and kind is STRING"),
        ({"aggregate": "sum", "column": "amont", "last": "1 h", "above": 1}, "there is no column 'amont'"),
        ({"aggregate": "count", "last": "1 h", "above": 1, "where": "kind"}, "line 1, column 1: a condition must be"),
        ({"aggregate": "count", "last": "1 h", "above": 1, "where": "LAST(kind) = 'a'"}, "LAST is not allowed here"),
    ],
)
def test_a_threshold_that_does_not_suit_the_columns_is_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        ThresholdRule.model_validate({"name": "many", **parameters}).compile(flink.COLUMNS)
    assert message in str(refused.value)


@pytest.mark.parametrize("further", [{"above": 1}, {"last": "1 h"}, {"last": "1 h", "transactions": 3, "above": 1}])
def test_a_threshold_has_one_window_and_one_limit(further: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="a threshold needs either"):
        ThresholdRule.model_validate({"name": "many", "aggregate": "count", **further})
