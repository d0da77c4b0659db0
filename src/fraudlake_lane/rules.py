"""Rules of the fast lane: selects the rules that an account's last rows can decide, and says why others are refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.rules.rule_set import Status

_PAIRS_ROWS = 8
_FEW_ROWS = 64
_MOST_ROWS = 256
"""The largest number of an account's rows in the state: for pairs, for few transactions, and for other windows.

With fewer, a row that is read late would miss its neighbours. The partitions of a backlog are read in parallel, each at
its own pace, so pairs get the most rows then. More rows cost time: with each new row, Spark writes all of an account's
rows again, and space for all that may still come.
"""
_IN_PYTHON = ("stddev", "z_score")
"""Aggregates that need integers of any size to be those of the exact lane."""
_NEVER_NULL = ("amount", "account_id", "accountId", "transaction_id", "timestamp", "dt")


R = TypeVar("R", SmallThenLargeRule, ThresholdRule)


@dataclass(frozen=True)
class LaneRule(Generic[R]):
    """A rule, and its version in the lake; None if it is not known."""

    rule: R
    version: int | None

    def __str__(self) -> str:
        """Return the name and version for messages."""
        return self.rule.name if self.version is None else f"{self.rule.name} version {self.version}"


@dataclass(frozen=True)
class LaneRules:
    """The rules that run, and the names of those that do not, with the reasons."""

    pairs: tuple[LaneRule[SmallThenLargeRule], ...]
    thresholds: tuple[LaneRule[ThresholdRule], ...]
    refused: dict[str, str]
    is_without_end: bool = False
    """Whether an account's last rows stay in the state permanently."""

    @property
    def span(self) -> timedelta | None:
        """The longest time between two rows on which one alert depends; None if rows stay in the state permanently."""
        spans = [*(pair.rule.within for pair in self.pairs), self.longest_window]
        return None if self.is_without_end else max(spans)

    @property
    def longest_window(self) -> timedelta:
        """The longest duration of a threshold's window."""
        return max((threshold.rule.duration or timedelta(0) for threshold in self.thresholds), default=timedelta(0))

    def rows(self, *, is_catching_up: bool) -> int:
        """Return the largest number of an account's rows in a window of the state, while a backlog is read or later."""
        if not self.thresholds:
            return _MOST_ROWS if is_catching_up else _PAIRS_ROWS
        few = (0 < (threshold.rule.transactions or 0) <= _FEW_ROWS // 2 for threshold in self.thresholds)
        return _FEW_ROWS if all(few) else _MOST_ROWS


def choose(rules: Iterable[tuple[Rule, Status, int | None]], is_without_end: bool = False) -> LaneRules:
    """Choose the rules that can run.

    Args:
        rules: each with its status, ``live`` or ``shadow``, and its version.
        is_without_end: whether an account's last rows stay in the state permanently, instead of for a limited time.

    Raises:
        UsageError: no rule can run.
    """
    pairs: list[LaneRule[SmallThenLargeRule]] = []
    thresholds: list[LaneRule[ThresholdRule]] = []
    refused: dict[str, str] = {}
    for rule, status, version in rules:
        reason = "it is in the shadow" if status != "live" else _refusal(rule, is_without_end)
        if reason is not None:
            refused[rule.name] = reason
        elif isinstance(rule, SmallThenLargeRule):
            pairs.append(LaneRule(rule, version))
        elif isinstance(rule, ThresholdRule):
            thresholds.append(LaneRule(rule, version))
    if not pairs and not thresholds:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "there is none"
        raise UsageError(f"no rule can run in the fast lane ({reasons}): 'fraudlake detect' evaluates them")
    return LaneRules(tuple(pairs), tuple(thresholds), refused, is_without_end)


def _refusal(rule: Rule, is_without_end: bool) -> str | None:
    """Return why a rule cannot run here; None if it can."""
    if rule.entity != ACCOUNT:
        return f"it is by {rule.entity}, and this lane groups transactions by account"
    if rule.watched:
        return f"it alerts on the list {min(rule.watched)} only, and this lane reads no tables"
    if isinstance(rule, SmallThenLargeRule):
        return None
    if rule.looks_at == "predictions":
        return "it looks at predictions, which 'fraudlake score' makes, and this lane makes none"
    if not isinstance(rule, ThresholdRule):
        return f"rules of the kind '{rule.kind}' are evaluated in Python, which Spark's Real-time Mode does not call"
    columns = _NEVER_NULL if rule.aggregate == "count" else ("amount",)
    needed: float = rule.transactions or 0
    if rule.aggregate in ("count", "distinct"):
        needed = max(needed, rule.limit + 1 if rule.above is not None else rule.limit)
    reasons = {
        "its condition is evaluated in Python, which Spark's Real-time Mode does not call": rule.where is not None,
        f"a {rule.aggregate} is computed in Python, which Spark's Real-time Mode does not call": rule.aggregate
        in _IN_PYTHON,
        f"this lane does not keep the column '{rule.column}'": rule.column not in columns,
        "its last transactions may be of any age, which only --without-end keeps": not (
            rule.duration or is_without_end
        ),
        f"it may need more rows of an account than the {_MOST_ROWS} of the state": needed >= _MOST_ROWS,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)
