"""Rule choice: chooses thresholds and their limits that find the most fraud for a budget of days of accounts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.model import account_days, rule_candidates
from fraudlake.rules.columns import query_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.model.account_days import AccountDays
    from fraudlake.model.search import Progress
    from fraudlake.rules.kinds.threshold import ThresholdRule
    from fraudlake.settings import Settings

_MOST_RULES = 6
_MOST_LIMITS = 250
_TIE = 0.01
"""The difference in precision up to which the simpler threshold, then the one that finds more, is chosen."""
_LEAST_DAYS = 5
_LEAST_SHARE = 0.02
"""The share of the frauds to find that a rule must add."""
_LIFT = 3
"""How many times as often as on average there must be fraud among what a rule finds."""
_Z = 1.645
"""The standard errors by which the precision of a limit may be overestimated."""


@dataclass(frozen=True)
class Trial:
    """A threshold without a limit, its possible limits from the lowest, and how many each day of an account exceeds."""

    rule: ThresholdRule
    limits: NDArray[np.float64]
    levels: NDArray[np.uint8]


class Choice(NamedTuple):
    """A threshold with a limit, by the limit's number."""

    trial: Trial
    at: int

    @property
    def rule(self) -> ThresholdRule:
        """The rule with its limit."""
        limit = float(self.trial.limits[self.at])
        rule = self.trial.rule
        return rule.model_copy(update={"above": limit} if rule.above is not None else {"below": -limit})

    @property
    def is_alerted(self) -> NDArray[np.bool_]:
        """Which days of accounts have an alert."""
        alerted: NDArray[np.bool_] = self.trial.levels > self.at
        return alerted


def try_all(
    rules: Sequence[ThresholdRule], silver: pa.Table, days: AccountDays, settings: Settings, progress: Progress
) -> Iterator[Trial]:
    """Evaluate thresholds over all transactions, and choose their possible limits."""
    ordered: dict[str, tuple[pa.Table, NDArray[np.int64]]] = {}
    columns = query_columns(settings.silver_columns)
    for number, rule in enumerate(rules):
        progress(number, len(rules), f"{rule.entity}: {rule.aggregate}")
        compiled = rule.compile(columns, settings.entities)
        if rule.entity not in ordered:
            ordered = {rule.entity: _ordered(silver, compiled.partition_by)}
        table, places = ordered[rule.entity]
        totals = compiled.totals(table)
        values = np.full(len(silver), np.nan)
        values[places[totals.rows.order[totals.chosen]]] = totals.values if rule.below is None else -totals.values
        highest = days.highest(values)
        limits = _limits(highest[days.is_learned & days.is_fraud], rule.aggregate in rule_candidates.WHOLE)
        if len(limits):
            # Without a value, no limit is exceeded.
            levels = np.searchsorted(limits, np.where(np.isnan(highest), -np.inf, highest), "left")
            yield Trial(rule, limits, levels.astype(np.uint8))


def _ordered(silver: pa.Table, key: Sequence[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    """Return the transactions that have a key, by key and time, and their places: sorted rows are sorted faster."""
    has_key = np.all([silver[name].is_valid().to_numpy() for name in key], axis=0)
    by = [(name, "ascending") for name in (*key, "timestamp")]
    order = pc.sort_indices(silver, by).to_numpy().astype(np.int64)
    places = order[has_key[order]]
    return silver.take(pa.array(places)), places


def _limits(values: NDArray[np.float64], is_whole: bool) -> NDArray[np.float64]:
    """Return limits just below some values, whole or with two digits; if there are many, only a few."""
    levels = np.unique(values[np.isfinite(values)])
    limits = np.unique(np.floor(levels) - 1 if is_whole else _below(levels))
    at = np.unique(np.linspace(0, len(limits) - 1, min(len(limits), _MOST_LIMITS)).round().astype(int))
    return limits[at] if len(limits) else limits


def _below(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the next lower numbers of two significant digits."""
    exponent = np.floor(np.log10(np.abs(np.where(values == 0, 1.0, values)))).astype(int) - 1
    digits = np.floor(values / 10.0**exponent)

    def written(digits: NDArray[np.float64]) -> NDArray[np.float64]:
        # A number that is written in decimal is the nearest one to it; a quotient need not be.
        return np.array([float(f"{some:.0f}e{at}") for some, at in zip(digits, exponent, strict=True)])

    limits = written(digits)
    return np.where(limits < values, limits, written(digits - 1))


def choose(tried: Sequence[Trial], days: AccountDays, budget: float) -> list[Choice]:
    """Choose thresholds and limits one after the other, each time the one that is the most precise for certain.

    Args:
        tried: the thresholds.
        days: days of accounts.
        budget: how many days of accounts without an alert of a live rule may have one.
    """
    is_open = days.is_learned & ~days.has_live_alert
    to_find = int((is_open & days.is_fraud).sum())
    labelled = int((is_open & days.is_labelled).sum())
    needed = _Needed(_least(to_find), min(_LIFT * to_find / max(labelled, 1), 0.5))
    # A chosen rule may find a little more by a lower limit; it is no further rule.
    lower = needed._replace(frauds=_LEAST_DAYS)
    chosen: dict[int, Choice] = {}
    while True:
        rows = np.flatnonzero(is_open)
        options: dict[int, _Option] = {}
        for number, one in enumerate(tried):
            if number in chosen or len(chosen) < _MOST_RULES:
                option = _best(one, rows, days, budget, lower if number in chosen else needed)
                if option is not None:
                    options[number] = option
        if not options:
            return [*chosen.values()]
        highest = max(option.precision for option in options.values())
        best = [number for number, option in options.items() if option.precision >= highest - _TIE]
        number = max(best, key=lambda number: (tried[number].rule.where is None, options[number].frauds))
        chosen[number] = Choice(tried[number], options[number].at)
        is_alerted = is_open & chosen[number].is_alerted
        budget -= int(is_alerted.sum())
        is_open &= ~is_alerted


class _Needed(NamedTuple):
    """What a rule must add: days of accounts with fraud, and their share of those with labels."""

    frauds: int
    precision: float


class _Option(NamedTuple):
    """The best limit of a threshold, by its number, with the lower end of the interval of its precision."""

    precision: float
    frauds: int
    at: int


def _best(one: Trial, rows: NDArray[np.int64], days: AccountDays, budget: float, needed: _Needed) -> _Option | None:
    """Return the best limit of a threshold; None if no limit adds what is needed within the budget."""
    levels = one.levels[rows]
    is_fraud = days.is_fraud[rows]
    is_labelled = days.is_labelled[rows]
    alerted = _beyond(levels, len(one.limits))
    frauds = _beyond(levels[is_fraud], len(one.limits))
    precision = lowest_share(frauds, _beyond(levels[is_labelled], len(one.limits)))
    is_possible = (frauds >= needed.frauds) & (alerted <= budget) & (precision >= needed.precision)
    for block in range(account_days.BLOCKS):
        is_here = days.block[rows] == block
        hits, labelled = (_beyond(levels[chosen & is_here], len(one.limits)) for chosen in (is_fraud, is_labelled))
        is_possible &= hits >= needed.precision * np.maximum(labelled, 1)
    if not is_possible.any():
        return None
    # The lowest limit finds the most.
    at = int(np.argmax(is_possible & (precision >= precision[is_possible].max() - _TIE)))
    return _Option(float(precision[at]), int(frauds[at]), at)


def _beyond(levels: NDArray[np.uint8], limits: int) -> NDArray[np.int64]:
    """Count the days of accounts beyond each limit."""
    counted: NDArray[np.int64] = np.bincount(levels, minlength=limits + 1)[::-1].cumsum()[::-1][1:]
    return counted


def _least(to_find: int) -> int:
    """Return how many of the days of accounts with fraud a rule must add."""
    return max(_LEAST_DAYS, math.ceil(_LEAST_SHARE * to_find))


def lowest_share(frauds: NDArray[Any], labelled: NDArray[Any]) -> NDArray[np.float64]:
    """Return the lower end of Wilson's interval of the share of fraud (JASA 22, 1927)."""
    count = np.maximum(labelled, 1)
    share = frauds / count
    spread = _Z * np.sqrt(share * (1 - share) / count + (_Z / count) ** 2 / 4)
    lowest: NDArray[np.float64] = (share + _Z**2 / count / 2 - spread) / (1 + _Z**2 / count)
    return lowest


def without_needless(chosen: list[Choice], days: AccountDays) -> list[Choice]:
    """Leave out rules that add less to the others than a rule must."""
    is_fraud = days.is_learned & ~days.has_live_alert & days.is_fraud
    least = _least(int(is_fraud.sum()))
    remaining = chosen
    for one in reversed(chosen):
        others = [other for other in remaining if other is not one]
        is_by_others = np.zeros_like(is_fraud)
        for other in others:
            is_by_others |= other.is_alerted
        if int((is_fraud & ~is_by_others & one.is_alerted).sum()) < least:
            remaining = others
    return remaining
