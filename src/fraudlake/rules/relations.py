"""Relations: proves which rules can never alert, and which contain each other, without any transaction.

What is said is proved for all transactions; what cannot be proved is said to be undecided. Two threshold rules are
compared if their aggregates grow, or shrink, with the rows of a window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from fraudlake.entity import ACCOUNT
from fraudlake.rules.condition import Answer, Case, Condition, UndecidedError, answer, both
from fraudlake.rules.domain import Value
from fraudlake.rules.kinds.model import ModelRule
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.text import sql_text
from fraudlake.times.durations import microseconds
from fraudlake.values import BASE_AMOUNT
from fraudlake_patterns import sql

if TYPE_CHECKING:
    from fraudlake.rules.kinds import Rule
    from fraudlake_patterns.expressions import Column

    Columns = Mapping[str, Column]

Kind = Literal["never", "contained", "apart", "overlap", "undecided"]

_GROWING = ("count", "distinct", "max")
"""Aggregates that do not fall if a window has more rows."""
_SHRINKING = ("min",)
_OF_VALUES = ("min", "max", "mean", "last", "quantile")
"""Aggregates that are between the smallest and the largest value of the column."""
_AMOUNTS = ("amount", BASE_AMOUNT)
"""Columns that have a value in each row that a threshold of them counts."""
_FLAGS = ("is_first", "changed")
_TIMES = ("seconds_since_first", "seconds_since_last")


@dataclass(frozen=True)
class Finding:
    """What is proved of a rule, or of two.

    ``never``: the rule can never alert. ``contained``: whenever the rule alerts, the other one does, on the same
    transaction. ``apart``: they never alert on the same transaction. ``overlap``: they may, with an example.
    ``undecided``: none of these is proved.
    """

    kind: Kind
    rule: str
    other: str | None = None
    reason: str = ""
    example: Mapping[str, Value | None] | None = None
    """Columns of a transaction on which both rules may alert; other columns may be anything."""

    def __str__(self) -> str:
        """Return it as a sentence."""
        match self.kind:
            case "never":
                return f"{self.rule} can never alert: {self.reason}"
            case "contained":
                return f"{self.rule} is contained in {self.other}: {self.reason}"
            case "apart":
                return f"{self.rule} and {self.other} never alert on the same transaction"
            case "overlap":
                values = ", ".join(f"{name} {_text(value)}" for name, value in (self.example or {}).items())
                example = f", such as {values}" if values else ""
                return f"{self.rule} and {self.other} may alert on one transaction{example}"
        return f"{self.rule} and {self.other}: not decided"


def find(rules: Sequence[Rule], columns: Columns) -> list[Finding]:
    """Return what is proved of rules and of each two of them.

    Args:
        rules: valid rules, with different names.
        columns: the columns by the names that conditions use.
    """
    reasons = {rule.name: _never(rule, columns) for rule in rules}
    findings = [Finding("never", name, reason=reason) for name, reason in reasons.items() if reason]
    able = [rule for rule in rules if not reasons[rule.name]]
    for one, other in combinations(able, 2):
        contained = [
            Finding("contained", inner.name, outer.name, reason)
            for inner, outer in ((one, other), (other, one))
            if (reason := _contained(inner, outer, columns))
        ]
        findings += contained or [_together(one, other, columns)]
    return findings


def _text(value: Value | None) -> str:
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else str(value)


def _never(rule: Rule, columns: Columns) -> str | None:
    """Return the reason why a rule can never alert; None: it may."""
    try:
        if isinstance(rule, ThresholdRule):
            return _never_crossed(rule, columns)
        if isinstance(rule, PatternRule):
            return _never_matched(rule, columns)
    except UndecidedError:
        return None
    return None


def _never_crossed(rule: ThresholdRule, columns: Columns) -> str | None:
    cases = _where(rule, columns)
    if not cases and rule.aggregate != "share":
        return f"its condition contradicts itself: {rule.where}"
    low, high = _bounds(rule, cases, columns)
    what = f"{rule.aggregate} of {rule.column}" if rule.aggregate in _OF_VALUES else rule.aggregate
    if rule.above is not None and high <= rule.above:
        return f"{what} is at most {high:g}, and it alerts above {rule.above:g}"
    if rule.below is not None and low >= rule.below:
        return f"{what} is at least {low:g}, and it alerts below {rule.below:g}"
    return None


def _bounds(rule: ThresholdRule, cases: Sequence[Case], columns: Columns) -> tuple[float, float]:
    """Return the smallest and the largest value that the aggregate can have."""
    aggregate = rule.aggregate
    most = math.inf if rule.transactions is None else float(rule.transactions)
    if aggregate == "count":
        return 1.0 if rule.column == "amount" else 0.0, most
    if aggregate == "distinct":
        return 0.0, most
    if aggregate == "share":
        return 0.0, 1.0 if cases else 0.0
    if aggregate in _FLAGS:
        return 0.0, 1.0
    if aggregate in _TIMES:
        return 0.0, math.inf if rule.duration is None else rule.duration.total_seconds()
    if aggregate == "stddev":
        return 0.0, math.inf
    if aggregate in _OF_VALUES:
        domains = [case.get(columns[rule.column].name) for case in cases]
        bounded = [one for one in domains if one is not None and one.included is None and not one.is_nan]
        if len(bounded) == len(domains):
            low, high = min(one.low for one in bounded), max(one.high for one in bounded)
            return (_rounded(low, -1), _rounded(high, 1)) if aggregate == "mean" else (low, high)
    return -math.inf, math.inf


def _rounded(limit: float, sign: int) -> float:
    """Widen a limit of values to one of their computed mean, which is rounded and may overflow to infinity."""
    return limit + sign * abs(limit) * 2**-50 if abs(limit) < 1e290 else sign * math.inf


def _never_matched(rule: PatternRule, columns: Columns) -> str | None:
    """Return which variable that each match needs has a condition that contradicts itself."""
    clauses = sql.clauses(sql.Text(rule.text("accountId"), rule.name))
    words = [token.text for token in clauses.pattern[1:-1]]
    defined = {part.name: clauses.text.sql[part.start : part.end] for part in clauses.define}
    if {"(", "|", "PERMUTE"} & {word.upper() for word in words}:
        return None
    for number, name in enumerate(words):
        following = "".join(words[number + 1 : number + 4])
        is_optional = following.startswith(("*", "?", "{,", "{0"))
        if name in defined and not is_optional and not Condition(defined[name], columns, name).cases():
            return f"the condition of {name} contradicts itself: {defined[name]}"
    return None


def _contained(inner: Rule, outer: Rule, columns: Columns) -> str | None:
    """Return why each transaction on which one rule alerts raises an alert of another, too; None: not proved."""
    if not _are_lists_within(inner, outer):
        return None
    try:
        if isinstance(inner, ModelRule) and isinstance(outer, ModelRule):
            return _compare_scores(inner, outer)
        if isinstance(inner, SmallThenLargeRule) and isinstance(outer, SmallThenLargeRule):
            return _compare_pairs(inner, outer)
        if isinstance(outer, ThresholdRule) and _is_implied(inner, outer, columns):
            return f"each of its transactions alone crosses the limit of {outer.name}"
        if isinstance(inner, ThresholdRule) and isinstance(outer, ThresholdRule):
            return _compare_thresholds(inner, outer, columns)
        same = {"name", "allowed", "watched"}
        if inner.kind == outer.kind and inner.model_dump(exclude=same) == outer.model_dump(exclude=same):
            return "they are the same"
    except UndecidedError:
        return None
    return None


def _are_lists_within(inner: Rule, outer: Rule) -> bool:
    """Return whether the lists of the outer rule take away no alert that those of the inner rule leave."""
    is_allowed_within = outer.allowed.items() <= inner.allowed.items()
    # A rule alerts on what is on any of its watched lists.
    is_watched_within = not outer.watched or (inner.watched and inner.watched.items() <= outer.watched.items())
    return bool(is_allowed_within and is_watched_within)


def _compare_scores(inner: ModelRule, outer: ModelRule) -> str | None:
    limits = inner.threshold, outer.threshold
    if isinstance(limits[0], str) or isinstance(limits[1], str):
        return "they are the same" if limits[0] == limits[1] else None
    return f"its threshold is {limits[0]:g}, not below {limits[1]:g}" if limits[0] >= limits[1] else None


def _compare_pairs(inner: SmallThenLargeRule, outer: SmallThenLargeRule) -> str | None:
    is_within = (
        inner.entity == outer.entity
        and inner.small_below <= outer.small_below
        and inner.large_above >= outer.large_above
        and inner.within <= outer.within
    )
    return "its limits and its time are not wider" if is_within else None


def _is_implied(inner: Rule, outer: ThresholdRule, columns: Columns) -> bool:
    """Return whether a transaction of the inner rule crosses the outer's limit by itself, whatever else is there."""
    own = _constrain(inner, columns)
    # A transaction without a key of the outer rule's entity is not evaluated by it.
    if own is None or outer.entity not in (inner.entity, ACCOUNT) or _may_be_nan(outer, columns):
        return False
    conditions = [] if outer.where is None else [Condition(outer.where, columns)]
    if outer.aggregate == ("max" if outer.above is not None else "min"):
        conditions.append(_beyond(outer, columns))
    elif outer.aggregate != "count" or outer.above is None or outer.above >= 1 or outer.column != "amount":
        return False
    return all(not both(own, condition.cases("not true")) for condition in conditions)


def _beyond(rule: ThresholdRule, columns: Columns) -> Condition:
    """Return the condition that a transaction's own value crosses the limit."""
    return Condition(f"{sql_text.name(str(rule.column))} {'<' if rule.above is None else '>'} {rule.limit!r}", columns)


def _compare_thresholds(inner: ThresholdRule, outer: ThresholdRule, columns: Columns) -> str | None:
    fields = {"name", "where", "window", "above", "below", "allowed", "watched"}
    if inner.model_dump(exclude=fields) != outer.model_dump(exclude=fields):
        return None
    is_above = inner.above is not None
    if is_above != (outer.above is not None):
        return None
    if (inner.limit < outer.limit) if is_above else (inner.limit > outer.limit):
        return None
    is_equal = _implies(inner, outer, columns) and _implies(outer, inner, columns)
    if is_equal and inner.window == outer.window:
        return f"the same aggregate, with the limit {inner.limit:g} instead of {outer.limit:g}"
    if inner.aggregate == "share" or not _are_comparable(inner, outer):
        return None
    # With more rows a growing aggregate stays above its limit, and a shrinking one below.
    grows = inner.aggregate in _GROWING
    if not grows and inner.aggregate not in _SHRINKING:
        return None
    if grows == is_above:
        if _may_be_nan(outer, columns):
            return None
        is_wider = _span(outer) >= _span(inner) and (is_equal or (inner.duration and _implies(inner, outer, columns)))
        return f"{outer.name} counts at least its transactions" if is_wider else None
    # A narrower window may have no value, of which there is neither a least nor a largest one.
    is_known = inner.column in _AMOUNTS or inner.aggregate in ("count", "distinct")
    is_narrower = _span(outer) <= _span(inner) and is_equal and is_known
    return f"{outer.name} counts at most its transactions" if is_narrower else None


def _may_be_nan(rule: ThresholdRule, columns: Columns) -> bool:
    """Return whether the least or the largest value of a window may be NaN, which crosses no limit."""
    is_double = columns[rule.column].type.name == "DOUBLE" and rule.column not in _AMOUNTS
    return rule.aggregate in ("min", "max") and is_double


def _are_comparable(inner: ThresholdRule, outer: ThresholdRule) -> bool:
    return (inner.duration is None) == (outer.duration is None)


def _span(rule: ThresholdRule) -> int:
    window: timedelta | int = rule.window
    return microseconds(window) if isinstance(window, timedelta) else window


def _implies(inner: ThresholdRule, outer: ThresholdRule, columns: Columns) -> bool:
    """Return whether the condition of one rule implies the other's."""
    if outer.where is None or inner.where == outer.where:
        return True
    return not both(_where(inner, columns), Condition(outer.where, columns).cases("not true"))


def _where(rule: ThresholdRule, columns: Columns) -> list[Case]:
    return [{}] if rule.where is None else Condition(rule.where, columns).cases()


def _constrain(rule: Rule, columns: Columns) -> list[Case] | None:
    """Return what is known of a transaction that completes an alert of a rule; None: nothing is read from the rule."""
    if isinstance(rule, SmallThenLargeRule):
        return Condition(f"amount > {rule.large_above!r}", columns).cases()
    if not isinstance(rule, ThresholdRule):
        return None
    cases = [{}] if rule.aggregate == "share" else _where(rule, columns)
    # The transaction itself is in its window, and of one transaction it is all of the window.
    is_bound = rule.aggregate == ("min" if rule.above is not None else "max") and rule.column in _AMOUNTS
    if is_bound or (rule.transactions == 1 and rule.aggregate in (*_OF_VALUES, "sum")):
        return both(cases, _beyond(rule, columns).cases())
    return cases


def _together(one: Rule, other: Rule, columns: Columns) -> Finding:
    """Say whether two rules can alert on one transaction."""
    try:
        sides = [_constrain(rule, columns) for rule in (one, other)]
        cases: list[list[Case]] = [side for side in sides if side is not None]
        result = answer(both(*cases)) if len(cases) == len(sides) else Answer(None)
    except UndecidedError:
        result = Answer(None)
    if result.is_possible is None:
        return Finding("undecided", one.name, other.name)
    if result.is_possible:
        return Finding("overlap", one.name, other.name, example=result.example)
    return Finding("apart", one.name, other.name)
