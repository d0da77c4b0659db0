"""What is missed: estimates the fraud that no queue listed, with intervals, from the accounts drawn at random.

A day's queue lists cases by their priority, and draws accounts at random among all others that paid on that day. There
are two kinds of fraud among the others: nothing flagged it, or alerts did and the queue was too short for its case.
Each drawn account represents ``population / drawn`` of them (Horvitz and Thompson, 1952), so the sum of these weights
over drawn fraud is an unbiased estimate, however good the list is. An amount is that of the payments marked as fraud.

The intervals (:mod:`fraudlake.model.intervals`) cover the truth with 90 %, even if the draws have few frauds or none.
No limit contradicts the observations: if all accounts are drawn, the interval is their count. The upper limit of an
amount assumes that undrawn accounts with fraud are those that spent the most, and that all they spent was fraud: with
few draws and a heavy tail it is far above the estimate, and no tighter bound is known. It follows Stringer's bound of
auditors (Bickel, International Statistical Review 60, 1992).

A drawn account that nobody has decided is represented by the decided ones of its day. So is an ``unsure`` one in the
estimate; in the limits it may be either. A listed case without a verdict is neither found nor missed. A day without any
decided draw says nothing about its other accounts: it is left out, with its cases. Verdicts are assumed to be right,
and a wrong one on a drawn account has the weight of all accounts that it represents, so two analysts should look at
each drawn account that is called fraud.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from fraudlake.model import intervals
from fraudlake.model.intervals import CONFIDENCE, Estimate
from fraudlake.review.cases import DRAWN
from fraudlake.values import MOST_AMOUNT

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

QUEUE_COLUMNS = ("day", "item_id", "kind", "account_id", "amount_at_risk", "population", "is_flagged")
"""The columns of ``gold_review_queue`` that the functions need."""
FRAUD = "fraud"
GENUINE = "genuine"
UNSURE = "unsure"


Spent = Callable[[list[date], int, int], "Floats | None"]
"""From days, a number and a population, returns that number of the largest daily amounts of unlisted accounts, in
account currency, descending; None if fewer accounts than the population are known."""


@dataclass(frozen=True)
class Others:
    """Fraud of accounts that were not listed, drawn ones included, summed over the days."""

    drawn: int
    """Drawn accounts with fraud."""
    accounts: Estimate
    amount: Estimate
    """In account currency; the upper limit is infinite if the spending of the other accounts is unknown."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {"drawn": self.drawn, "accounts": self.accounts._asdict(), "amount": self.amount._asdict()}


@dataclass(frozen=True)
class Missed:
    """Fraud that the lists of some days found and missed; an item is a case, or a drawn account of a day.

    ``naive_recall`` is the share of the known fraud that was listed, and ``precision`` the share of the decided cases
    that are fraud. Amounts are in account currency.
    """

    first: date
    last: date
    days: int
    """Days with a decided draw; others are left out."""
    cases: int
    """Listed cases with a verdict of fraud or genuine."""
    found: int
    """Listed cases with a verdict of fraud."""
    found_amount: float
    drawn: int
    """Drawn accounts with such a verdict."""
    population: int
    """Accounts that could be drawn, summed over the days."""
    undecided: int
    """Listed and drawn items without such a verdict."""
    precision: float | None
    naive_recall: float | None
    recall: Estimate
    """Fraud that was flagged, by a rule or a score, as a share of all."""
    reviewed: Estimate
    """Fraud that was listed and found, as a share of all."""
    unflagged: Others
    """Fraud that nothing flagged."""
    unreviewed: Others
    """Fraud that was flagged, but not listed."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        shares = {"recall": self.recall._asdict(), "reviewed": self.reviewed._asdict()}
        others = {"unflagged": self.unflagged.as_dict(), "unreviewed": self.unreviewed.as_dict()}
        return {**asdict(self), **shares, **others}


def over(
    queue: pa.Table,
    verdicts: Mapping[str, str],
    first: date | None = None,
    last: date | None = None,
    amounts: Mapping[str, float] | None = None,
    spent: Spent | None = None,
) -> Missed | None:
    """Estimate the fraud that the lists of some days missed; None if no day has a decided draw.

    Args:
        queue: rows of ``gold_review_queue``, :data:`QUEUE_COLUMNS`.
        verdicts: the latest verdict on each decided item, ``fraud``, ``genuine`` or ``unsure``, by its id.
        first: the first day that counts; None: the first of the queue.
        last: the last day that counts; None: the last of the queue.
        amounts: amounts of fraud by item; items without an entry count with their amount at risk.
        spent: the largest amounts of unlisted accounts; None: unknown.
    """
    items = _items(queue, verdicts, amounts or {})
    in_range = np.ones(len(items), bool)
    if first is not None:
        in_range &= (items["day"] >= first).to_numpy()
    if last is not None:
        in_range &= (items["day"] <= last).to_numpy()
    return _estimated(items[in_range], spent)


def _items(queue: pa.Table, verdicts: Mapping[str, str], amounts: Mapping[str, float]) -> pd.DataFrame:
    """Return the items with ``verdict`` and ``amount``; a case that was listed again counts on its first day."""
    rows: pd.DataFrame = queue.select(QUEUE_COLUMNS).to_pandas()
    items = rows.sort_values("day", kind="stable").drop_duplicates("item_id")
    items["verdict"] = items["item_id"].map(verdicts)
    items["is_flagged"] = items["is_flagged"].eq(True)  # null for a case
    items["amount"] = (
        items["item_id"].map(amounts).fillna(items["amount_at_risk"]).astype(float).clip(-MOST_AMOUNT, MOST_AMOUNT)
    )
    return items


def with_weights(queue: pa.Table, verdicts: Mapping[str, str]) -> pd.DataFrame:
    """Return the items of days with a decided draw, with ``weight``; the arguments are those of :func:`over`."""
    return _with_weights(_items(queue, verdicts, {}))


def _with_weights(items: pd.DataFrame) -> pd.DataFrame:
    """Return the items of days with a decided draw, with the number of accounts that each represents.

    ``weight`` counts decided draws only; ``least_weight`` counts ``unsure`` ones, too, so it is never larger.
    """
    is_drawn = items["kind"] == DRAWN
    decided = (
        items[is_drawn & items["verdict"].isin((FRAUD, GENUINE))].groupby("day")["population"].agg(["size", "max"])
    )
    answers = items[is_drawn & items["verdict"].isin((FRAUD, GENUINE, UNSURE))].groupby("day").size()
    covered = items[items["day"].isin(decided.index)]
    weights = decided["max"] / decided["size"], decided["max"] / answers
    weight, least = (np.where(covered["kind"] == DRAWN, covered["day"].map(one), 1.0) for one in weights)
    return covered.assign(weight=weight, least_weight=least)


def _estimated(items: pd.DataFrame, spent: Spent | None) -> Missed | None:
    covered = _with_weights(items)
    if covered.empty:
        return None
    is_drawn = covered["kind"] == DRAWN
    is_fraud, is_genuine = (covered["verdict"] == verdict for verdict in (FRAUD, GENUINE))
    listed = covered[~is_drawn & (is_fraud | is_genuine)]
    listed_fraud = covered[~is_drawn & is_fraud]
    sample = _Sample(covered[is_drawn], spent)
    flagged = sample.drawn["is_flagged"]
    all_ = sample.drawn["is_flagged"].notna()
    fraud = int((is_drawn & is_fraud).sum())
    # Two intervals share the error probability (Bonferroni).
    unflagged, unreviewed = (sample.accounts(part, (1 + CONFIDENCE) / 2) for part in (~flagged, flagged))
    return Missed(
        first=covered["day"].min(),
        last=covered["day"].max(),
        days=covered["day"].nunique(),
        cases=len(listed),
        found=len(listed_fraud),
        found_amount=float(listed_fraud["amount"].sum()),
        drawn=fraud + int((is_drawn & is_genuine).sum()),
        population=sample.population,
        undecided=int((~is_fraud & ~is_genuine).sum()),
        precision=_share(len(listed_fraud), len(listed)),
        naive_recall=_share(len(listed_fraud), len(listed_fraud) + fraud),
        recall=_recall(len(listed_fraud), unreviewed, unflagged),
        reviewed=_recall(len(listed_fraud), _NONE, sample.accounts(all_)) if len(listed) else Estimate(None, 0.0, 1.0),
        unflagged=sample.others(~flagged),
        unreviewed=sample.others(flagged),
    )


_NONE = Estimate(0.0, 0.0, 0.0)


class _Sample:
    """Drawn accounts of some days, which represent all unlisted accounts of those days."""

    def __init__(self, drawn: pd.DataFrame, spent: Spent | None) -> None:
        self.drawn = drawn
        self._spent = spent
        self.population = int(drawn.groupby("day")["population"].max().sum())
        self._is_fraud = drawn["verdict"] == FRAUD
        self._is_unsure = drawn["verdict"] == UNSURE
        self._has_verdict = self._is_fraud | self._is_unsure | (drawn["verdict"] == GENUINE)

    def others(self, is_part: pd.Series[bool]) -> Others:
        """Estimate the fraud among unlisted accounts that fulfil a condition, given for the drawn ones."""
        return Others(int((is_part & self._is_fraud).sum()), self.accounts(is_part), self._amount(is_part))

    def accounts(self, is_part: pd.Series[bool], confidence: float = CONFIDENCE) -> Estimate:
        """Estimate the number of accounts with fraud."""
        weights = self.drawn["least_weight"].to_numpy()
        fraud, unsure = ((is_part & which).to_numpy() for which in (self._is_fraud, self._is_unsure))
        has_verdict = self._has_verdict.to_numpy()
        may_be = fraud | unsure
        low = total(weights[fraud], weights[has_verdict & ~fraud], self.population, confidence).low
        high = total(weights[may_be], weights[has_verdict & ~may_be], self.population, confidence).high
        return Estimate(float(self.drawn["weight"].to_numpy()[fraud].sum()), low, high)

    def _amount(self, is_part: pd.Series[bool]) -> Estimate:
        fraud = self.drawn[is_part & self._is_fraud]
        may_be = self.drawn[is_part & (self._is_fraud | self._is_unsure)]
        value = float((fraud["weight"] * fraud["amount"]).sum())
        drawn_amount = float(fraud["amount"].sum())
        low, _ = intervals.estimate_sum((fraud["least_weight"] * fraud["amount"]).to_numpy(), 0.0)
        most = self.accounts(is_part).high
        if most <= len(fraud):
            return Estimate(value, drawn_amount, drawn_amount)
        return Estimate(value, max(low, drawn_amount), max(self._most_amount(may_be, most), value, drawn_amount))

    def _most_amount(self, may_be: pd.DataFrame, most: float) -> float:
        """Return the upper limit of an amount: see the module docstring.

        Args:
            may_be: the drawn accounts that may be fraud.
            most: the upper limit of the number of accounts.
        """
        days = sorted({*self.drawn["day"]})
        largest = self._spent(days, int(np.ceil(most)) + 1, self.population) if self._spent else None
        if largest is None:
            return float("inf")
        ordered = may_be.sort_values("amount", ascending=False)
        weights, amounts = (ordered[name].to_numpy() for name in ("least_weight", "amount"))
        weight = float(self.drawn["least_weight"].max())
        limits = [min(intervals.estimate_sum(weights[:number], weight)[1], most) for number in range(len(weights) + 1)]
        totals = np.concatenate(([0.0], np.cumsum(np.minimum(largest, MOST_AMOUNT))))
        spent = np.interp([limits[0], most], np.arange(len(totals)), totals)
        return float(min(spent[0] + (np.diff(limits) * amounts).sum(), spent[1]))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _recall(frauds: int, further: Estimate, missed: Estimate) -> Estimate:
    """Return found and further fraud as a share of all fraud; without fraud the interval is 0 to 1."""
    value = _share(frauds + (further.value or 0.0), frauds + (further.value or 0.0) + (missed.value or 0.0))
    low, high = (
        _share(frauds + more, frauds + more + less)
        for more, less in ((further.low, missed.high), (further.high, missed.low))
    )
    return Estimate(value, 0.0 if low is None else low, 1.0 if high is None else high)


def weights(queue: pa.Table, verdicts: Mapping[str, str]) -> dict[str, float]:
    """Return the number of accounts that each decided item represents, by id; 1 for a listed case.

    The arguments are those of :func:`over`. Items of days without a decided draw are left out.
    """
    items = with_weights(queue, verdicts)
    decided = items[items["verdict"].isin((FRAUD, GENUINE))]
    return dict(zip(decided["item_id"], decided["weight"].astype(float), strict=True))


def total(hits: Floats, others: Floats, of: float, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate how many of ``of`` units are hits, from those that were drawn.

    Args:
        hits: the weights of drawn units that are hits: the number of units that each represents.
        others: the weights of the other drawn units.
        of: the number of units.
        confidence: the probability with which the interval covers the truth.
    """
    largest = float(max(hits.max(initial=0), others.max(initial=0)))
    low, high = intervals.estimate_sum(hits, largest, confidence)
    fewest, most = intervals.estimate_sum(others, largest, confidence)
    low = max(low, of - most, len(hits))
    high = min(high, of - fewest, of - len(others))
    return Estimate(float(hits.sum()), min(low, high), high)
