"""Rules of the fast lane: those that an account's last two rows can tell, and why the others cannot run here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from fraudlake.errors import UsageError
from fraudlake.rules.kinds import Rule
from fraudlake.rules.rule_set import Status
from fraudlake.rules.small_then_large import FraudRule
from fraudlake.rules.threshold import ThresholdRule


class Pair(NamedTuple):
    """A rule of two rows, and its version in the lake; None where it is not known."""

    rule: FraudRule
    version: int | None


@dataclass(frozen=True)
class LaneRules:
    """The rules that run, and the names of those that do not, with the reasons."""

    pairs: tuple[Pair, ...]
    refused: dict[str, str]

    @property
    def span(self) -> timedelta:
        """The longest time between two rows on which one alert depends."""
        return max(pair.rule.within for pair in self.pairs)


def choose(rules: Iterable[tuple[Rule, Status, int | None]]) -> LaneRules:
    """Choose the rules that can run.

    Args:
        rules: each with its status, ``live`` or ``shadow``, and its version.

    Raises:
        UsageError: no rule can run.
    """
    pairs, refused = [], {}
    for rule, status, version in rules:
        if status != "live":
            refused[rule.name] = "it is in the shadow"
        elif isinstance(rule, FraudRule):
            pairs.append(Pair(rule, version))
        elif isinstance(rule, ThresholdRule):
            refused[rule.name] = "thresholds stay with the exact lane"
        else:
            refused[rule.name] = "row patterns are evaluated in Python, which Spark's Real-time Mode does not call"
    if not pairs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "there is none"
        raise UsageError(f"no rule can run in the fast lane ({reasons}): 'fraudlake detect' evaluates them")
    return LaneRules(tuple(pairs), refused)
