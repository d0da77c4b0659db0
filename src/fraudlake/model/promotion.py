"""Promotion: decides from the scores of two versions on the same rows whether one may replace the other, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fraudlake.model.intervals import CONFIDENCE, Estimate
from fraudlake.model.metrics import Budget, LabelledScores, Ranked
from fraudlake.model.registry import AREA
from fraudlake.text.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fraudlake.settings import Settings

    Floats = NDArray[np.floating[Any]]

RESAMPLES = 400
LEAST_ACCOUNTS = 5
"""The number of accounts with fraud below which nothing is decided.

If the versions were equally good, all of four accounts would still be ranked higher in one of 16 cases.
"""
_AT_BUDGET = ("precision_at_budget", "recall_at_budget")
_SEED = 1
_MOST = 4_000_000
"""The number of weights of entries that are in memory at a time."""


@dataclass(frozen=True)
class Decision:
    """Whether a version is better, why, and by how much: the difference of each metric that was compared."""

    is_better: bool
    reason: str
    differences: dict[str, Estimate]


def decide(old: str, old_scores: LabelledScores, new: str, new_scores: LabelledScores, settings: Settings) -> Decision:
    """Decide whether version ``new`` beats ``old`` in ``promotion_metric`` by more than chance explains.

    It does if the interval of the difference is above 0. If the metric is the area under PR, the intervals of precision
    and recall at the budget must not be below 0, either: a lead among scores that nobody reviews does not count.

    Args:
        old: the number of a version.
        old_scores: its scores.
        new: the number of the other version.
        new_scores: its scores of the same transactions, in the same order.
        settings: the metric and the budget.
    """
    accounts = len(np.unique(new_scores.accounts[new_scores.fraud]))
    if accounts < LEAST_ACCOUNTS:
        reason = f"the test rows have fraud of {counted(accounts, 'account')}, and {LEAST_ACCOUNTS} are needed"
        return Decision(False, f"version {new} is not compared with version {old}: {reason}", {})
    if new_scores.fraud.all():
        reason = "all test rows are fraud"
        return Decision(False, f"version {new} is not compared with version {old}: {reason}", {})

    metric = settings.promotion_metric
    names = (metric, *_AT_BUDGET) if metric == AREA else (metric,)
    budget = Budget(settings.alert_budget, settings.alert_cost)
    before, after = (Ranked(scores, budget) for scores in (old_scores, new_scores))
    once = np.ones((before.accounts, 1))
    old_figures, new_figures = (ranked.measure(names, once) for ranked in (before, after))
    differences = _differences(names, before, after, len(new_scores.scores))
    leads = differences[metric].low > 0
    is_no_worse = [differences[name].high >= 0 for name in names]
    sentences = []
    for name, lead in differences.items():
        values = f"{new_figures[name][0]:.4f} against {old_figures[name][0]:.4f}"
        sentences.append(f"{_title(name)} {values}, {_difference(lead, name == metric)}")
    is_better = leads and all(is_no_worse)
    verb = "beats" if is_better else "does not beat"
    return Decision(is_better, f"version {new} {verb} version {old} ({'; '.join(sentences)})", differences)


def _differences(names: tuple[str, ...], before: Ranked, after: Ranked, entries: int) -> dict[str, Estimate]:
    """Estimate the lead of one version over another in each metric, by a bootstrap of accounts.

    The payments of an account are alike, so accounts are drawn and not payments (a cluster bootstrap: Davison and
    Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8). Both versions are measured on each resample.
    A resample in which a metric is undefined, such as one without fraud, does not count for it.
    """
    leads = [_leads(names, before, after, times) for times in resampled(before.accounts, entries)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(np.concatenate(leads, axis=1), (tail, 1 - tail), axis=1)
    (whole,) = _leads(names, before, after, np.ones((before.accounts, 1))).T
    return {name: Estimate(float(whole[at]), float(low[at]), float(high[at])) for at, name in enumerate(names)}


def _leads(names: tuple[str, ...], before: Ranked, after: Ranked, times: Floats) -> Floats:
    """Return the difference in each metric (row) of each resample (column)."""
    old, new = (ranked.measure(names, times) for ranked in (before, after))
    return np.array([new[name] - old[name] for name in names])


def resampled(accounts: int, entries: int, resamples: int = RESAMPLES) -> Iterator[Floats]:
    """Yield how often each account (row) is drawn in each resample (column), for some resamples at a time.

    The draws are the same each time for the same number of accounts.
    """
    draw = np.random.default_rng(_SEED)
    size = min(max(_MOST // max(entries, 1), 1), resamples)
    for begin in range(0, resamples, size):
        times = np.zeros((accounts, min(size, resamples - begin)))
        for column in times.T:
            column += np.bincount(draw.integers(accounts, size=accounts), minlength=accounts)
        yield times


def _difference(lead: Estimate, is_to_lead: bool) -> str:
    condition = "to be above 0" if is_to_lead else "not to be below 0"
    interval = f"{CONFIDENCE * 100:.0f} % interval {lead.low:+.4f} to {lead.high:+.4f}"
    return f"difference {lead.value:+.4f} ({interval}, {condition})"


def _title(name: str) -> str:
    return "area under PR" if name == AREA else name.replace("_", " ")
