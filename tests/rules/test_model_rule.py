"""The kind model: how it is written, what it refuses, and who evaluates it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fraudlake.detection import rule_table
from fraudlake.detection.evaluator import Evaluator
from fraudlake.errors import UsageError
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleSet
from fraudlake.settings import Settings
from fraudlake_lane import rules as lane


def rule(**fields: Any) -> Any:
    return RULE.validate_python({"kind": "model", "name": "scored", "threshold": 0.8, **fields})


def test_a_threshold_is_a_probability_or_a_budget_as_in_the_settings() -> None:
    assert rule(threshold="0.8") == rule()
    assert rule(threshold=" 100 accounts a day").threshold == "100 accounts a day"
    assert RULE.validate_json(rule().model_dump_json(exclude_none=True)) == rule()
    with pytest.raises(ValidationError, match="a budget such as '100 accounts a day'"):
        rule(threshold=1.5)
    with pytest.raises(ValidationError, match="Field required"):
        RULE.validate_python({"kind": "model", "name": "scored"})


def test_it_is_by_account() -> None:
    settings = Settings(columns={"terminal_id": "string"}, entities={"terminal": "terminal_id"})
    rule_table.require_valid([rule()], settings)
    with pytest.raises(UsageError, match="scored: rules of the kind model are by account"):
        rule_table.require_valid([rule(entity="terminal")], settings)


def test_score_evaluates_it_and_neither_the_detector_nor_the_fast_lane_does() -> None:
    settings = Settings(rules=[*Settings().rules, rule()])
    known = RuleSet.of(settings.rules)
    assert [version.rule for version in known.select_source("predictions").live] == [rule()]
    assert [version.rule.name for version in known.select_source("transactions").live] == ["small_then_large"]
    with pytest.raises(UsageError, match="scored: a rule of the kind model looks at predictions"):
        Evaluator.of(settings, known.versions)
    chosen = lane.choose([(one, "live", 1) for one in settings.rules])
    assert chosen.refused == {
        "scored": "it looks at predictions, which 'fraudlake score' makes, and this lane makes none"
    }
