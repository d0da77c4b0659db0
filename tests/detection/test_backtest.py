"""Figures of a backtest, which can be counted by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fraudlake.detection import backtest, evidence
from fraudlake.detection.report import Range, Report, Tally, report, with_verdicts
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.threshold import ThresholdRule

RULE = ThresholdRule(name="many", aggregate="count", window="2 transactions", above=1)


def alert(day: int, *names: str, labels: list[bool | None] | None = None) -> dict[str, object]:
    return {
        "time": datetime(2026, 1, day, 12, tzinfo=UTC),
        "account_id": "7",
        "transaction_id": names[-1],
        "summed_amount": 10.0,
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


def counted(alerts: pa.Table, history: Range, verdicts: dict[str, bool], at_once: int = 10) -> Report:
    tallies = []
    for key in dict.fromkeys(alerts["entity_key"].to_pylist()):
        of_key = with_verdicts(alerts.filter(pc.equal(alerts["entity_key"], key)), verdicts)
        tally = Tally()
        for begin in range(0, len(of_key), at_once):
            tally.add(of_key.slice(begin, at_once))
        tallies.append(json.loads(json.dumps(tally.as_dict())))
    return report(RULE, tallies, history, sum(verdicts.values()))


def test_figures_count_alerts_by_day_and_what_they_found() -> None:
    found = pa.Table.from_pylist(
        [alert(1, "a", "b", labels=[False, True]), alert(1, "b", "c", labels=[True, None]), alert(2, "d", "e")]
    )
    history = Range(100, None, None, fraud=4)

    figures = counted(found, history, {"a": False, "c": True, "x": True})

    assert figures.alerts_per_day == {"2026-01-01": 2, "2026-01-02": 1}
    assert figures.amount_at_risk == 30.0
    label = figures.by_label
    assert (label.alerts_with_truth, label.right_alerts, label.fraud, label.detected_fraud) == (3, 2, 4, 1)
    verdict = figures.by_verdict
    assert (verdict.precision, verdict.recall) == (1 / 2, 1 / 2)
    assert "count 2" in figures.samples[0]


@pytest.mark.parametrize("sign", [1, -1])
def test_amounts_at_the_edge_of_what_a_double_holds_leave_a_finite_amount_at_risk(sign: int) -> None:
    found = pa.Table.from_pylist(
        [
            {**alert(day, f"{key}{day}"), "entity_key": key, "summed_amount": sign * 1.7e308}
            for key in "tu"
            for day in (1, 2)
        ]
    )

    assert counted(found, Range(4, None, None, fraud=0), {}).amount_at_risk == sign * 4e12


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_figures_are_the_same_in_whatever_parts_alerts_are_counted(at_once: int) -> None:
    found = pa.Table.from_pylist(
        [
            {**alert(day, f"{key}{day}", f"{key}{day + 1}", labels=[day % 2 == 0, None]), "entity": "terminal"}
            | {"entity_key": key, "account_id": account, "summed_amount": amount}
            for key, account, amount in (("t", "7", 10.0), ("u", "8", 0.1), ("v", "7", 0.2))
            for day in range(1, 8)
        ]
    )
    figures = counted(found, Range(100, None, None, fraud=9), {"t2": True, "u3": False, "v9": True}, at_once)
    assert (figures.alerts, figures.accounts, figures.keys, figures.entity) == (21, 2, 3, "terminal")
    assert figures.alerts_per_day == {f"2026-01-0{day}": 3 for day in range(1, 8)}
    assert figures.amount_at_risk == pytest.approx(7 * 10.3, rel=1e-15)
    label = figures.by_label
    assert (label.alerts_with_truth, label.right_alerts, label.fraud, label.detected_fraud) == (21, 9, 9, 9)
    verdict = figures.by_verdict
    # t2 is in the alerts of days 1 and 2, u3 in those of 2 and 3; v9 is in none.
    assert (verdict.alerts_with_truth, verdict.right_alerts, verdict.fraud, verdict.detected_fraud) == (4, 2, 2, 1)
    assert len(figures.samples) == 5


def test_without_anything_to_find_the_shares_are_unknown() -> None:
    empty = pa.Table.from_pylist([], schema=pa.Table.from_pylist([alert(1, "a")]).schema)
    figures = counted(empty, Range(0, None, None, fraud=0), {})
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
