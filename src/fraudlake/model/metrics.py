"""Metrics: computes the metrics by which classifiers are compared, from labels, predictions and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fraudlake.model import intervals
from fraudlake.model.intervals import Estimate
from fraudlake.values import MOST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Flags = NDArray[np.bool_]


class Budget(NamedTuple):
    """The number of alerts that can be reviewed in a day, and the cost of reviewing one, in account currency."""

    alerts: int = 100
    cost: float = 0.0


@dataclass(frozen=True)
class LabelledScores:
    """Scored transactions whose truth is known, an array entry each.

    ``fraud`` is the truth, and ``predicted`` the prediction. The higher ``scores`` are, the likelier fraud is.
    ``amounts`` are in account currency; ``accounts`` and ``days`` are numbers that tell them apart. An entry represents
    ``weights`` transactions.
    """

    fraud: Flags
    predicted: Flags
    scores: Floats
    amounts: Floats
    accounts: NDArray[np.int64]
    days: NDArray[np.int64]
    weights: Floats

    def where(self, chosen: Flags | NDArray[np.int64]) -> LabelledScores:
        """Select entries by a mask or by indices."""
        return LabelledScores(*(values[chosen] for values in vars(self).values()))

    def by_day(self) -> Iterator[LabelledScores]:
        """Yield the entries of each day."""
        order = np.argsort(self.days, kind="stable")
        _, begins = np.unique(self.days[order], return_index=True)
        yield from (self.where(of_day) for of_day in np.split(order, begins[1:]) if len(of_day))

    def by_account(self) -> LabelledScores:
        """Return each account's entry of the highest score; it is fraud if any entry of the account is."""
        order = np.lexsort((-self.scores, self.accounts))
        _, firsts = np.unique(self.accounts[order], return_index=True)
        highest = self.where(order[firsts])
        return replace(highest, fraud=np.isin(highest.accounts, self.accounts[self.fraud]))


def measure_all(rows: LabelledScores, budget: Budget) -> dict[str, float]:
    """Return :func:`metrics_of` and :func:`measure_budget` of transactions."""
    return metrics_of(rows.fraud, rows.predicted, rows.scores, rows.weights) | measure_budget(rows, budget)


def metrics_of(fraud: Flags, predicted: Flags, scores: Floats, weights: Floats | None = None) -> dict[str, float]:
    """Compare predictions with the truth; a metric that is undefined is left out.

    ``true_prediction_rate`` is the accuracy, under the name that Databricks' article on Flink with Delta Lake gives it.
    It is close to 1 for any model if fraud is rare, so precision, recall, F1 and the area under the precision-recall
    curve are given as well.

    Args:
        fraud: whether a transaction is fraud.
        predicted: whether it is predicted.
        scores: the higher, the likelier fraud is.
        weights: the number of transactions that an entry represents; by default 1.
    """
    weights = np.ones(len(fraud)) if weights is None else weights
    both, of_fraud, of_predicted = (float(weights @ mask) for mask in (fraud & predicted, fraud, predicted))
    total = float(weights.sum())
    figures = {
        "transactions": (total, 1.0),
        "fraud": (of_fraud, 1.0),
        "true_prediction_rate": (float(weights @ (fraud == predicted)), total),
        "precision": (both, of_predicted),
        "recall": (both, of_fraud),
        "f1": (2 * both, of_predicted + of_fraud),
        "area_under_pr": (area_under_pr(fraud, scores, weights) if of_fraud else 0.0, float(bool(of_fraud))),
    }
    return {name: value / of for name, (value, of) in figures.items() if of}


def estimated(rows: LabelledScores) -> dict[str, Estimate]:
    """Estimate precision and recall from known entries, and from drawn ones, which represent others.

    Entries are drawn by account and day; an entry of weight 1 represents only itself. Undefined metrics are left out.
    Without drawn entries all metrics are left out, since known entries say nothing about the others.
    """
    is_drawn = rows.weights > 1
    if not is_drawn.any():
        return {}
    _, of = np.unique(np.column_stack([rows.accounts, rows.days]), axis=0, return_inverse=True)
    weights = np.where(is_drawn, rows.weights, 0.0)
    largest = float(np.bincount(of.ravel(), weights).max(initial=0))
    estimates = {}
    for name, chosen, is_hit in (
        ("precision", rows.predicted, rows.fraud),
        ("recall", rows.fraud, rows.predicted),
    ):
        drawn: list[Floats] = []
        known: list[float] = []
        for part in (chosen & is_hit, chosen & ~is_hit):
            sums = np.bincount(of.ravel(), weights * part).astype(float)
            drawn.append(sums[sums > 0])
            known.append(float((part & ~is_drawn).sum()))
        hits, others = (number + float(sums.sum()) for number, sums in zip(known, drawn, strict=True))
        if hits + others:
            low, high = intervals.estimate_share(drawn[0], drawn[1], known[0], known[1], largest)
            estimates[name] = Estimate(hits / (hits + others), low, high)
    return estimates


def measure_budget(rows: LabelledScores, budget: Budget) -> dict[str, float]:
    """Return the metrics of a team that reviews a fixed number of alerts a day; undefined metrics are left out.

    ``precision_at_budget`` and ``recall_at_budget`` are those of the transactions with the highest scores of each day,
    as many as the budget has alerts. ``card_precision`` and ``card_recall`` are the same by account: an account has the
    highest score of its transactions of a day, is compromised if one of them is fraud, and is not reviewed again after
    it was detected (the card precision of the Fraud Detection Handbook, chapter 4). Among equal scores, transactions
    that are not fraud count first. ``amount_saved`` is the amount of predicted fraud minus the cost of all predictions;
    a transaction counts for at most :data:`~fraudlake.values.MOST_AMOUNT`.
    """
    flagged = rows.where(rows.predicted)
    amounts = np.clip(flagged.amounts, -MOST_AMOUNT, MOST_AMOUNT) * flagged.weights
    saved = math.fsum(amounts[flagged.fraud]) - budget.cost * float(flagged.weights.sum())
    figures = {"amount_saved": saved}
    if rows.fraud.any() and not rows.fraud.all():
        figures["area_under_roc"] = area_under_roc(rows.fraud, rows.scores, rows.weights)
    for names, days in (
        (("precision_at_budget", "recall_at_budget"), _by_transaction(rows, budget.alerts)),
        (("card_precision", "card_recall"), _by_account(rows, budget.alerts)),
    ):
        hits, looked_at, fraud = np.sum([*days, np.zeros(3)], axis=0)
        figures |= {name: float(hits / of) for name, of in zip(names, (looked_at, fraud), strict=True) if of}
    return figures


def _by_transaction(rows: LabelledScores, alerts: int) -> Iterator[NDArray[np.float64]]:
    """Yield, for each day, the weights of reviewed fraud, of all reviewed transactions, and of all fraud."""
    for of_day in rows.by_day():
        taken = _taken(of_day, alerts)
        yield np.array([taken @ of_day.fraud, taken.sum(), of_day.weights @ of_day.fraud])


def _by_account(rows: LabelledScores, alerts: int) -> Iterator[NDArray[np.float64]]:
    """Yield the same for accounts."""
    detected = np.zeros(0, np.int64)
    for of_day in rows.by_day():
        accounts = of_day.where(~np.isin(of_day.accounts, detected)).by_account()
        taken = _taken(accounts, alerts)
        detected = np.append(detected, accounts.accounts[(taken > 0) & accounts.fraud])
        yield np.array([taken @ accounts.fraud, taken.sum(), accounts.weights @ accounts.fraud])


def _taken(rows: LabelledScores, alerts: int) -> Floats:
    """Return the weight of each entry that is among the ``alerts`` highest scores."""
    order = np.lexsort((rows.fraud, -rows.scores))
    weights = rows.weights[order]
    taken = np.empty(len(order))
    taken[order] = np.clip(alerts - (np.cumsum(weights) - weights), 0, weights)
    return taken


def by_score(scores: Floats) -> tuple[NDArray[np.int64], Flags]:
    """Return the order by decreasing score, and which entries are the last of their score in it."""
    order = np.argsort(-scores, kind="stable")
    return order, np.append(np.diff(scores[order]) != 0, True)


def area_under_pr(fraud: Flags, scores: Floats, weights: Floats) -> float:
    """Return the average precision: precision summed over the steps of recall, with equal scores as a single step."""
    order, is_last = by_score(scores)
    seen = np.cumsum(weights[order])[is_last]
    hits = np.cumsum((weights * fraud)[order])[is_last]
    return float(np.sum(hits / seen * np.diff(hits, prepend=0)) / hits[-1])


def area_under_roc(fraud: Flags, scores: Floats, weights: Floats) -> float:
    """Return the probability that fraud has a higher score than another transaction; equal scores count half."""
    order, is_last = by_score(scores)
    hits, others = (np.cumsum((weights * mask)[order])[is_last] for mask in (fraud, ~fraud))
    below = others[-1] - others + np.diff(others, prepend=0) / 2
    return float(np.diff(hits, prepend=0) @ below / (hits[-1] * others[-1]))
