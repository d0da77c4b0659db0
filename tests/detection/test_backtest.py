"""Figures of a backtest, which can be counted by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from fraudlake.detection import backtest, evidence
from fraudlake.detection.report import Range, report
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.threshold import ThresholdRule

RULE = ThresholdRule(name="many", aggregate="count", transactions=2, above=1)


def alert(day: int, *names: str, labels: list[bool | None] | None = None) -> dict[str, object]:
    return {
        "time": datetime(2026, 1, day, 12, tzinfo=UTC),
        "account_id": "7",
        "transaction_id": names[-1],
        "amount": 10.0,
        "entity": "account",
        "entity_key": "7",
        "roles": ["counted"] * len(names),
        "transaction_ids": list(names),
        "times": [0] * len(names),
        "amounts": [10.0] * len(names),
        "labels": labels or [False] * len(names),
        "columns": None,
        "measures": json.dumps({"count": len(names)}),
    }


def test_figures_count_alerts_by_day_and_what_they_found() -> None:
    found = pa.Table.from_pylist(
        [alert(1, "a", "b", labels=[False, True]), alert(1, "b", "c", labels=[True, None]), alert(2, "d", "e")]
    )
    history = Range(100, None, None, fraud=4)

    figures = report(RULE, found, history, {"a": False, "c": True, "x": True})

    assert figures.alerts_per_day == {"2026-01-01": 2, "2026-01-02": 1}
    assert figures.amount_at_risk == 30.0
    label = figures.by_label
    assert (label.alerts_with_truth, label.right_alerts, label.fraud, label.detected_fraud) == (3, 2, 4, 1)
    verdict = figures.by_verdict
    assert (verdict.precision, verdict.recall) == (1 / 2, 1 / 2)
    assert "count 2" in figures.samples[0]


def test_without_anything_to_find_the_shares_are_unknown() -> None:
    empty = pa.Table.from_pylist([], schema=pa.Table.from_pylist([alert(1, "a")]).schema)
    figures = report(RULE, empty, Range(0, None, None, fraud=0), {})
    assert (figures.by_label.precision, figures.by_label.recall, figures.samples) == (None, None, [])


@pytest.mark.parametrize("count", [3, 9])
def test_a_story_names_the_first_and_the_last_transactions(count: int) -> None:
    story = evidence.story(alert(1, *map(str, range(count))))
    assert story.startswith("Account 7: counted 10.00 at 1970-01-01 00:00:00")
    assert ("3 more" in story) == (count == 9)


def test_a_match_of_a_threshold_names_the_transaction_that_crossed_the_limit() -> None:
    found = pa.Table.from_pylist([alert(1, "a", "b"), alert(2, "d", "e")])
    assert [json.loads(line) for line in backtest.matches(RULE, found)] == [
        {"accountId": "7", "dt": "2026-01-01T12:00", "transaction_id": "b", "count": 2},
        {"accountId": "7", "dt": "2026-01-02T12:00", "transaction_id": "e", "count": 2},
    ]


def test_a_match_of_a_pattern_is_what_its_query_selects() -> None:
    pattern = PatternRule(name="ab", pattern="A B", define={"A": "A.amount > 1"})
    found = pa.Table.from_pylist([alert(1, "a", "b")])
    assert backtest.matches(pattern, found) == ['{"count": 2}']
