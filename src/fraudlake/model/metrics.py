"""Metrics: computes the metrics by which classifiers are compared, from labels, predictions and scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fraudlake.model import intervals
from fraudlake.model.intervals import Estimate
from fraudlake.values import MOST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Flags = NDArray[np.bool_]

OF_BUDGET = (
    *("amount_saved", "area_under_roc", "precision_at_budget", "recall_at_budget"),
    *("card_precision", "card_recall"),
)
"""The metrics of a team that reviews a fixed number of alerts a day."""


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
        scores: higher if fraud is likelier.
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
        counts: list[float] = []
        for part in (chosen & is_hit, chosen & ~is_hit):
            sums = np.bincount(of.ravel(), weights * part).astype(float)
            drawn.append(sums[sums > 0])
            counts.append(float((part & ~is_drawn).sum()))
        hits, others = (number + float(sums.sum()) for number, sums in zip(counts, drawn, strict=True))
        if hits + others:
            low, high = intervals.estimate_share(drawn[0], drawn[1], counts[0], counts[1], largest)
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
    ranked = Ranked(rows, budget)
    figures = ranked.measure(OF_BUDGET, np.ones((ranked.accounts, 1)))
    return {name: float(value) for name, (value,) in figures.items() if not math.isnan(value)}


class Ranked:
    """Scored transactions, sorted once, so that metrics can be computed for many resamples of their accounts."""

    def __init__(self, rows: LabelledScores, budget: Budget) -> None:
        """Take the transactions; they are sorted when a metric needs it."""
        self._rows = rows
        self._budget = budget
        names, self._account = np.unique(rows.accounts, return_inverse=True)
        self.accounts = len(names)

    def measure(self, names: Iterable[str], times: Floats) -> dict[str, Floats]:
        """Return metrics of each resample; NaN: undefined.

        Args:
            names: ``area_under_pr``, and those of :data:`OF_BUDGET`.
            times: how often an account, in increasing order of its number, is drawn (row) in a resample (column).
        """
        fractions: dict[str, tuple[Floats, Floats]] = {}
        for name in names:
            match name:
                case "amount_saved":
                    fractions[name] = (self._saved(times), np.ones(times.shape[1]))
                case "area_under_pr":
                    fractions[name] = self._by_score.area_under_pr(times)
                case "area_under_roc":
                    fractions[name] = self._by_score.area_under_roc(times)
                case "precision_at_budget" | "recall_at_budget" if name not in fractions:
                    hits, reviewed, fraud = self._transactions.review(times)
                    fractions |= {"precision_at_budget": (hits, reviewed), "recall_at_budget": (hits, fraud)}
                case "card_precision" | "card_recall" if name not in fractions:
                    hits, reviewed, fraud = self._cards.review(times)
                    fractions |= {"card_precision": (hits, reviewed), "card_recall": (hits, fraud)}
        undefined = np.full(times.shape[1], np.nan)
        return {
            name: np.divide(value, of, out=undefined.copy(), where=of > 0)
            for name, (value, of) in fractions.items()
            if name in names
        }

    def reviewed(self) -> Flags:
        """Return which transactions are reviewed within the budget."""
        return self._transactions.reviewed()

    def _saved(self, times: Floats) -> Floats:
        flagged = np.flatnonzero(self._rows.predicted)
        amounts = np.clip(self._rows.amounts[flagged], -MOST_AMOUNT, MOST_AMOUNT)
        saved = (self._rows.fraud[flagged] * amounts - self._budget.cost) * self._rows.weights[flagged]
        # The exact sum does not depend on the order of the entries.
        return np.array([math.fsum(saved * drawn) for drawn in times[self._account[flagged]].T])

    @cached_property
    def _by_score(self) -> _ByScore:
        return _ByScore(self._rows.fraud, self._rows.scores, self._rows.weights, self._account)

    @cached_property
    def _transactions(self) -> _Reviews:
        every = np.arange(len(self._account))
        return _Reviews(self._rows, every, self._rows.fraud, self._account, self._budget.alerts)

    @cached_property
    def _cards(self) -> _Reviews:
        rows = self._rows
        order = np.lexsort((-rows.scores, rows.accounts, rows.days))
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(rows.days[order]) != 0) | (np.diff(rows.accounts[order]) != 0)
        begins = np.flatnonzero(is_first)
        fraud = np.logical_or.reduceat(rows.fraud[order], begins) if len(begins) else rows.fraud
        return _Reviews(rows, order[begins], fraud, self._account, self._budget.alerts, only_once=True)


class _Reviews:
    """The review of the highest scores of each day, as many as there are alerts."""

    def __init__(
        self,
        rows: LabelledScores,
        chosen: NDArray[np.int64],
        fraud: Flags,
        account: NDArray[np.int64],
        alerts: int,
        only_once: bool = False,
    ) -> None:
        """Rank some of the entries.

        Args:
            rows: the entries.
            chosen: the indices of those that can be reviewed.
            fraud: whether each of these is fraud.
            account: the number of each entry's account, from 0 on.
            alerts: the number of reviews a day.
            only_once: an account is not reviewed again after its fraud was detected.
        """
        order = np.lexsort((fraud, -rows.scores[chosen], rows.days[chosen]))
        self._entries = chosen[order]
        self._fraud = fraud[order]
        self._account = account[self._entries]
        self._weights = rows.weights[self._entries]
        self._alerts = alerts
        self._only_once = only_once
        _, begins = np.unique(rows.days[self._entries], return_index=True)
        self._days = [slice(begin, end) for begin, end in pairwise([*begins, len(order)])]

    def review(self, times: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the weights of reviewed fraud, of all that is reviewed, and of all fraud, of each resample."""
        undetected = np.ones(times.shape) if self._only_once else None
        hits, reviewed, of_fraud = np.zeros((3, times.shape[1]))
        for day in self._days:
            left = times if undetected is None else times * undetected
            frauds = np.flatnonzero(self._fraud[day]) + day.start
            of_fraud += self._weights[frauds] @ left[self._account[frauds]]
            reviews, ranked = self._take_highest(day, left)
            fraud = np.flatnonzero(self._fraud[day][: len(reviews)])
            hits += reviews[fraud].sum(axis=0)
            reviewed += reviews.sum(axis=0)
            if undetected is not None:
                # An account that is drawn several times may be reviewed in part; the other part is left.
                share = np.divide(
                    reviews[fraud], ranked[fraud], out=np.zeros_like(reviews[fraud]), where=ranked[fraud] > 0
                )
                undetected[self._account[day][fraud]] *= 1 - share
        return hits, reviewed, of_fraud

    def reviewed(self) -> Flags:
        """Return which entries are reviewed if each account is drawn once."""
        is_reviewed = np.zeros(len(self._entries), bool)
        once = np.ones((len(self._account), 1))
        for day in self._days:
            reviews, _ = self._take_highest(day, once)
            is_reviewed[self._entries[day][: len(reviews)]] = reviews[:, 0] > 0
        return is_reviewed

    def _take_highest(self, day: slice, times: Floats) -> tuple[Floats, Floats]:
        """Return the reviewed and the whole weight of a day's highest entries; the others are not reviewed."""
        most = day.stop - day.start
        number = min(most, 2 * self._alerts)
        while True:
            # Only the top of the ranking matters, and how long it is depends on the weights.
            top = slice(day.start, day.start + number)
            ranked = times[self._account[top]] * self._weights[top, None]
            total = np.cumsum(ranked, axis=0)
            if number == most or total[-1].min() >= self._alerts:
                return np.clip(self._alerts - (total - ranked), 0, ranked), ranked
            number = min(most, 2 * number)


class _ByScore:
    """Entries by decreasing score, in groups between the scores of frauds; entries of equal score are in one group."""

    def __init__(self, fraud: Flags, scores: Floats, weights: Floats, account: NDArray[np.int64]) -> None:
        order, is_last = by_score(scores)
        self._account = account[order]
        self._weights = weights[order]
        begins = np.append(0, np.flatnonzero(is_last) + 1)[: int(is_last.sum())]
        has_fraud = np.logical_or.reduceat(fraud[order], begins) if len(begins) else fraud
        is_begin = has_fraud.copy()
        is_begin[1:] |= has_fraud[:-1]
        is_begin[:1] = True
        self._begins = begins[is_begin]
        self._has_fraud = has_fraud[is_begin]
        self._frauds = np.flatnonzero(fraud[order])
        group = np.searchsorted(self._begins, self._frauds, "right")
        self._fraud_begins = np.flatnonzero(np.diff(group, prepend=0))

    def area_under_pr(self, times: Floats) -> tuple[Floats, Floats]:
        """Return precision summed over fraud, and the number of frauds: the area is their quotient."""
        all_, fraud = self._groups(times)
        entries = np.cumsum(all_, axis=0)
        hits = np.cumsum(fraud, axis=0)
        precision = np.divide(hits, entries, out=np.zeros_like(hits), where=entries > 0)
        return (precision * fraud).sum(axis=0), fraud.sum(axis=0)

    def area_under_roc(self, times: Floats) -> tuple[Floats, Floats]:
        """Return the number of pairs of a fraud and a lower score, and of all pairs; equal scores count half."""
        all_, fraud = self._groups(times)
        others = all_ - fraud
        below = others.sum(axis=0) - np.cumsum(others, axis=0) + others / 2
        return (fraud * below).sum(axis=0), fraud.sum(axis=0) * others.sum(axis=0)

    def _groups(self, times: Floats) -> tuple[Floats, Floats]:
        """Return the weights of all entries and of frauds, a row for each group and a column for each resample."""
        fraud = np.zeros((len(self._begins), times.shape[1]))
        if not len(self._begins):
            return fraud, fraud
        if len(self._frauds):
            of_fraud = times[self._account[self._frauds]] * self._weights[self._frauds, None]
            fraud[self._has_fraud] = np.add.reduceat(of_fraud, self._fraud_begins, axis=0)
        weights = times[self._account]
        weights *= self._weights[:, None]
        return np.add.reduceat(weights, self._begins, axis=0), fraud


def by_score(scores: Floats) -> tuple[NDArray[np.int64], Flags]:
    """Return the order by decreasing score, and which entries are the last of their score in it."""
    order = np.argsort(-scores, kind="stable")
    return order, np.append(np.diff(scores[order]) != 0, True)[: len(order)]


def area_under_pr(fraud: Flags, scores: Floats, weights: Floats) -> float:
    """Return the average precision: precision summed over the steps of recall, with equal scores as a single step."""
    total, of = _alone(fraud, scores, weights).area_under_pr(np.ones((1, 1)))
    return float(total[0] / of[0])


def area_under_roc(fraud: Flags, scores: Floats, weights: Floats) -> float:
    """Return the probability that fraud has a higher score than another transaction; equal scores count half."""
    total, of = _alone(fraud, scores, weights).area_under_roc(np.ones((1, 1)))
    return float(total[0] / of[0])


def _alone(fraud: Flags, scores: Floats, weights: Floats) -> _ByScore:
    return _ByScore(fraud, scores, weights, np.zeros(len(fraud), np.int64))
