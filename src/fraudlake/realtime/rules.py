"""Rules of the fast lane: those that an account's last two rows can tell, and why the others cannot run here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fraudlake.errors import UsageError
from fraudlake.rules import rule_file
from fraudlake.rules.kinds import Rule
from fraudlake.rules.small_then_large import FraudRule
from fraudlake.rules.threshold import ThresholdRule
from fraudlake.settings import Settings


@dataclass(frozen=True)
class LaneRules:
    """The rules that run, and the names of those that do not, with the reasons."""

    pairs: tuple[FraudRule, ...]
    refused: dict[str, str]

    @property
    def span(self) -> timedelta:
        """The longest time between two rows on which one alert depends."""
        return max(rule.within for rule in self.pairs)


def choose(settings: Settings, file: Path | None = None) -> LaneRules:
    """Choose the rules that can run, from the settings or from a file of rules.

    Args:
        settings: has the rules, where no file is given.
        file: a file with ``[[rules]]``, as 'rules apply' reads it.

    Raises:
        UsageError: no rule can run, or the file has a mistake.
    """
    rules: Iterable[Rule] = settings.known_rules
    refused: dict[str, str] = {}
    if file is not None:
        entries = rule_file.read(file)
        rules = [rule for rule, status in entries if status == "live"]
        refused = {rule.name: "it is in the shadow" for rule, status in entries if status != "live"}
    pairs = []
    for rule in rules:
        if isinstance(rule, FraudRule):
            pairs.append(rule)
        elif isinstance(rule, ThresholdRule):
            refused[rule.name] = "thresholds stay with the exact lane"
        else:
            refused[rule.name] = "row patterns are evaluated in Python, which Spark's Real-time Mode does not call"
    if not pairs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "there is none"
        raise UsageError(f"no rule can run in the fast lane ({reasons}): 'fraudlake detect' evaluates them")
    return LaneRules(tuple(pairs), refused)
