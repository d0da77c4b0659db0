"""Which rules run in the fast lane, and in which versions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fraudlake.cli import realtime
from fraudlake.cli.app import App
from fraudlake.errors import UsageError
from fraudlake.realtime import rules
from fraudlake.rules.pattern import PatternRule
from fraudlake.rules.small_then_large import FraudRule
from fraudlake.rules.threshold import ThresholdRule

PAIR = FraudRule(name="pair", small_below=1, large_above=500, within=timedelta(minutes=1))
PATTERN = PatternRule(name="probe", pattern="A B", define={"A": "A.amount < 1", "B": "B.amount > 5"})
BUSY = ThresholdRule(name="busy", aggregate="count", last=timedelta(minutes=10), above=15)


def test_only_live_rules_run_and_the_others_have_a_reason() -> None:
    shadow = PAIR.model_copy(update={"name": "shadow"})

    chosen = rules.choose([(PAIR, "live", 3), (shadow, "shadow", 1), (PATTERN, "live", 2), (BUSY, "live", 1)])

    assert chosen.pairs == ((PAIR, 3),)
    assert chosen.span == timedelta(minutes=1)
    assert list(chosen.refused) == ["shadow", "probe", "busy"]
    assert chosen.refused["shadow"] == "it is in the shadow"
    assert "Python" in chosen.refused["probe"]


def test_without_a_rule_that_can_run_nothing_does() -> None:
    with pytest.raises(
        UsageError, match=r"no rule can run in the fast lane \(probe: row patterns .*'fraudlake detect'"
    ):
        rules.choose([(PATTERN, "live", 1)])


def test_without_a_lake_the_rules_are_those_that_a_new_one_begins_with(tmp_path: Path) -> None:
    app = App(tmp_path / "lake", None, None, None, json=False)

    assert [*realtime.of_lake(app, {"small_below": "2"})] == [
        (PAIR.model_copy(update={"name": "small_then_large", "small_below": 2}), "live", 1)
    ]
