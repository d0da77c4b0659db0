"""Thresholds against windows that are computed one row at a time."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from fraudlake.errors import UsageError
from fraudlake.rules.kinds.threshold import ThresholdRule
from tests.match_recognize import flink
from tests.match_recognize.test_match_recognize import table


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
        ({"aggregate": "count", "window": "1 h", "above": 1, "where": "kind"}, "line 1, column 1: a condition must be"),
        ({"aggregate": "count", "window": "1 h", "above": 1, "where": "LAST(kind) = 'a'"}, "LAST is not allowed here"),
    ],
)
def test_a_threshold_that_does_not_suit_the_columns_is_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        ThresholdRule.model_validate({"name": "many", **parameters}).compile(flink.COLUMNS)
    assert message in str(refused.value)


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
