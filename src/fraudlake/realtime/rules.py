"""Rules of the fast lane: those that an account's rows of a window can tell, and why the others cannot run here."""

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

_NEVER_NULL = ("amount", "account_id", "transaction_id", "timestamp")


@dataclass(frozen=True)
class LaneRules:
    """The rules that run, by kind, and the names of those that do not, with the reasons."""

    pairs: tuple[FraudRule, ...]
    thresholds: tuple[tuple[ThresholdRule, timedelta], ...]
    """Each with the duration of its window."""
    refused: dict[str, str]

    @property
    def span(self) -> timedelta:
        """The longest time between two rows on which one alert depends."""
        return max(*(rule.within for rule in self.pairs), *(last for _, last in self.thresholds), timedelta(0))


def choose(settings: Settings, file: Path | None = None, keep_forever: bool = False) -> LaneRules:
    """Choose the rules that can run, from the settings or from a file of rules.

    Args:
        settings: has the rules, where no file is given.
        file: a file with ``[[rules]]``, as 'rules apply' reads it.
        keep_forever: whether the state has no windows.

    Raises:
        UsageError: no rule can run, or the file has a mistake.
    """
    rules: Iterable[Rule] = settings.known_rules
    refused: dict[str, str] = {}
    if file is not None:
        entries = rule_file.read(file)
        rules = [rule for rule, status in entries if status == "live"]
        refused = {rule.name: "it is in the shadow" for rule, status in entries if status != "live"}
    pairs, thresholds = [], []
    for rule in rules:
        if isinstance(rule, FraudRule):
            pairs.append(rule)
        elif not isinstance(rule, ThresholdRule):
            refused[rule.name] = "row patterns are evaluated in Python, which Spark's Real-time Mode does not call"
        elif rule.where is not None:
            refused[rule.name] = "its condition is evaluated in Python, which Spark's Real-time Mode does not call"
        elif rule.last is None:
            refused[rule.name] = "its last transactions may be of any age, and this lane keeps rows for a time"
        elif rule.aggregate == "distinct":
            refused[rule.name] = "this lane does not count distinct values"
        elif rule.column not in (_NEVER_NULL if rule.aggregate == "count" else ("amount",)):
            refused[rule.name] = f"this lane does not keep the column '{rule.column}'"
        elif keep_forever:
            refused[rule.name] = "with --keep-forever the state has no windows of time"
        else:
            thresholds.append((rule, rule.last))
    if not pairs and not thresholds:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "there is none"
        raise UsageError(f"no rule can run in the fast lane ({reasons}): 'fraudlake detect' evaluates them")
    return LaneRules(tuple(pairs), tuple(thresholds), refused)
