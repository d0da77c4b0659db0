"""Which rules run in the fast lane, and in which versions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake.errors import UsageError
from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake_cli.app import App
from fraudlake_cli.commands import realtime
from fraudlake_lane import rules

PAIR = SmallThenLargeRule(name="pair", small_below=1, large_above=500, within=timedelta(minutes=1))
PATTERN = PatternRule(name="probe", pattern="A B", define={"A": "A.amount < 1", "B": "B.amount > 5"})
BUSY = ThresholdRule(name="busy", aggregate="count", window=timedelta(minutes=10), above=15)


def test_only_live_rules_run_and_the_others_have_a_reason() -> None:
    shadow = PAIR.model_copy(update={"name": "shadow"})

    chosen = rules.choose([(PAIR, "live", 3), (shadow, "shadow", 1), (PATTERN, "live", 2), (BUSY, "live", 1)])

    assert [*map(str, (*chosen.pairs, *chosen.thresholds))] == ["pair version 3", "busy version 1"]
    assert chosen.span == timedelta(minutes=10)
    assert list(chosen.refused) == ["shadow", "probe"]
    assert chosen.refused["shadow"] == "it is in the shadow"
    assert "Python" in chosen.refused["probe"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"where": "amount > 1"}, "condition is evaluated in Python"),
        ({"aggregate": "share", "where": "amount > 1"}, "condition is evaluated in Python"),
        ({"aggregate": "z_score"}, "a z_score is computed in Python"),
        ({"aggregate": "changed", "column": "label"}, "does not keep the column 'label'"),
        ({"column": "label"}, "does not keep the column 'label'"),
        ({"aggregate": "sum", "column": "tip"}, "does not keep the column 'tip'"),
        ({"window": "20 transactions"}, "may be of any age"),
        ({"above": 255}, "more rows of an account than the 256"),
        ({"above": None, "below": 256}, "more rows of an account than the 256"),
        ({"aggregate": "distinct", "above": 1000}, "more rows of an account than the 256"),
    ],
)
def test_a_threshold_that_the_kept_rows_cannot_tell_is_refused(fields: dict[str, Any], reason: str) -> None:
    rule = ThresholdRule.model_validate(BUSY.model_dump() | fields)

    assert reason in rules.choose([(PAIR, "live", 1), (rule, "live", 1)]).refused["busy"]


@pytest.mark.parametrize("rule", [PAIR, BUSY, PATTERN], ids=lambda rule: rule.kind)
def test_a_rule_of_any_kind_that_is_by_another_entity_is_refused(rule: Rule) -> None:
    by_terminal = rule.model_copy(update={"name": "at_terminal", "entity": "terminal"})

    chosen = rules.choose([(PAIR, "live", 1), (by_terminal, "live", 1)])

    assert [pair.rule for pair in chosen.pairs] == [PAIR] and not chosen.thresholds
    assert chosen.refused == {"at_terminal": "it is by terminal, and this lane groups transactions by account"}
    with pytest.raises(UsageError, match=r"at_terminal: it is by terminal.*'fraudlake detect' evaluates them"):
        rules.choose([(by_terminal, "live", 1)])


def test_a_query_by_another_column_is_refused() -> None:
    sql = (
        "SELECT * FROM transactions MATCH_RECOGNIZE (PARTITION BY merchantId ORDER BY dt MEASURES COUNT(*) AS many "
        "PATTERN (A B) DEFINE B AS B.amount > A.amount)"
    )

    refused = rules.choose([(PAIR, "live", 1), (PatternRule(name="query", sql=sql), "live", 1)]).refused

    assert list(refused) == ["query"] and "kind 'pattern'" in refused["query"]


def test_a_threshold_of_which_enough_rows_are_kept_runs() -> None:
    for fields in ({"above": 254}, {"above": None, "below": 255}, {"aggregate": "sum", "above": 1e9}):
        rule = ThresholdRule.model_validate(BUSY.model_dump() | fields)
        assert not rules.choose([(rule, "live", 1)]).refused


def test_without_a_rule_that_can_run_nothing_does() -> None:
    with pytest.raises(
        UsageError, match=r"no rule can run in the fast lane \(probe: rules of the kind 'pattern' .*'fraudlake detect'"
    ):
        rules.choose([(PATTERN, "live", 1)])


def test_without_a_lake_the_rules_are_those_that_a_new_one_begins_with(tmp_path: Path) -> None:
    app = App(tmp_path / "lake", None, None, None, json=False)

    tutorials = PAIR.model_copy(update={"name": "small_then_large"})
    assert [*realtime.rules_of_lake(app, {})] == [(tutorials, "live", 1)]
