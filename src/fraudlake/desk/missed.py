"""What is missed: the drawn share of review queues becomes estimates of the fraud that no list had, with intervals.

A day's queue lists cases by their priority, and draws accounts at random among all others that paid on that day. Fraud
among the others is missed by the list. Each drawn account represents ``population / drawn`` of them (Horvitz and
Thompson, 1952), so the sum of these weights over drawn fraud is an unbiased estimate of what is missed, whatever
the list is good at.

The intervals (:mod:`fraudlake.model.intervals`) hold the truth with 90 %, also if the draws have few frauds or none. No
limit contradicts what was seen: if all are drawn, the interval is their count. An amount is a sum whose weights have
the amounts as factors. Fraud that no draw has seen counts with the largest amount of fraud that is known in these days,
listed or drawn.

Assumptions: verdicts are right, and a drawn account that is ``unsure``, or that nobody has decided, is like the decided
ones of its day: these represent it, too. A listed case without a verdict is neither found nor missed. A day without any
decided draw tells nothing about its others: it is left out, with its cases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from fraudlake.model import intervals
from fraudlake.model.intervals import Estimate
from fraudlake.values import MOST_AMOUNT

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

QUEUE_COLUMNS = ("day", "item_id", "kind", "account_id", "amount_at_risk", "population")
"""The columns of ``gold_review_queue`` that the functions need."""
FRAUD, GENUINE = "fraud", "genuine"
_DRAWN = "drawn"


@dataclass(frozen=True)
class Missed:
    """What the lists of some days found and missed; items are a case each, or a drawn account of a day.

    ``naive_recall`` is the share of the known fraud that was listed, and ``precision`` the share of the decided cases
    that are fraud. Amounts are in account currency.
    """

    first: date
    last: date
    days: int
    """Days with a decided draw, which alone count."""
    cases: int
    """Listed cases with a verdict of fraud or genuine."""
    found: int
    """Those that are fraud."""
    found_amount: float
    drawn: int
    """Drawn accounts with such a verdict."""
    drawn_fraud: int
    population: int
    """Accounts that could be drawn, summed over the days."""
    undecided: int
    """Listed and drawn items without such a verdict."""
    precision: float | None
    naive_recall: float | None
    recall: Estimate
    """Fraud that was found, as a share of it and the missed."""
    missed: Estimate
    """Other accounts with fraud, summed over the days; those that were drawn are among them."""
    missed_amount: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        estimates = {name: getattr(self, name)._asdict() for name in ("recall", "missed", "missed_amount")}
        return {**asdict(self), **estimates}


@dataclass(frozen=True)
class Precision:
    """The precision of a rule, by accounts and days that it has alerts on."""

    listed: int
    """Accounts' days whose case was listed, with a verdict of fraud or genuine."""
    right: int
    """Those that are fraud."""
    unlisted: int
    """Accounts' days whose case was not listed."""
    drawn: int
    """Those of them that were drawn and decided."""
    naive: float | None
    """Share of the listed that are right."""
    weighted: Estimate
    """Share of all that are right."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "weighted": self.weighted._asdict()}


def over(
    queue: pa.Table,
    verdicts: Mapping[str, str],
    first: date | None = None,
    last: date | None = None,
    amounts: Mapping[str, float] | None = None,
) -> Missed | None:
    """Estimate what the lists of some days missed; None if no day has a decided draw.

    Args:
        queue: rows of ``gold_review_queue``, :data:`QUEUE_COLUMNS`.
        verdicts: the latest verdict on each decided item, ``fraud``, ``genuine`` or ``unsure``, by its id.
        first: the first day that counts; None: the first of the queue.
        last: the last day that counts; None: the last of the queue.
        amounts: amounts of fraud by item; other items of fraud have their amount at risk.
    """
    items = _items(queue, verdicts, amounts or {})
    in_range = np.ones(len(items), bool)
    if first is not None:
        in_range &= (items["day"] >= first).to_numpy()
    if last is not None:
        in_range &= (items["day"] <= last).to_numpy()
    return _estimated(items[in_range])


def by_week(
    queue: pa.Table, verdicts: Mapping[str, str], amounts: Mapping[str, float] | None = None
) -> dict[date, Missed]:
    """Estimate what the lists of each week missed, by its Monday; a week without a decided draw is left out.

    The arguments are those of :func:`over`.
    """
    items = _items(queue, verdicts, amounts or {})
    mondays = np.array([day - timedelta(days=day.weekday()) for day in items["day"]], object)
    weeks = {monday: _estimated(items[mondays == monday]) for monday in sorted(set(mondays))}
    return {monday: missed for monday, missed in weeks.items() if missed is not None}


def _items(queue: pa.Table, verdicts: Mapping[str, str], amounts: Mapping[str, float]) -> pd.DataFrame:
    """Return the items with ``verdict`` and ``amount``; a case that was listed again counts on its first day."""
    rows: pd.DataFrame = queue.select(QUEUE_COLUMNS).to_pandas()
    items = rows.sort_values("day", kind="stable").drop_duplicates("item_id")
    items["verdict"] = items["item_id"].map(verdicts)
    items["amount"] = (
        items["item_id"].map(amounts).fillna(items["amount_at_risk"]).astype(float).clip(upper=MOST_AMOUNT)
    )
    return items


def _with_weights(items: pd.DataFrame) -> pd.DataFrame:
    """Return the items of the days that have a decided draw, with ``weight``: how many accounts one represents."""
    is_decided = items["verdict"].isin((FRAUD, GENUINE))
    drawn = items[is_decided & (items["kind"] == _DRAWN)].groupby("day")["population"].agg(["size", "max"])
    weights = drawn["max"] / drawn["size"]
    covered = items[items["day"].isin(weights.index)]
    return covered.assign(weight=np.where(covered["kind"] == _DRAWN, covered["day"].map(weights), 1.0))


def _estimated(items: pd.DataFrame) -> Missed | None:
    covered = _with_weights(items)
    if covered.empty:
        return None
    is_drawn = covered["kind"] == _DRAWN
    is_fraud, is_genuine = (covered["verdict"] == verdict for verdict in (FRAUD, GENUINE))
    listed, found = covered[~is_drawn & (is_fraud | is_genuine)], covered[~is_drawn & is_fraud]
    fraud, genuine = covered[is_drawn & is_fraud], covered[is_drawn & is_genuine]
    population = int(covered[is_drawn].groupby("day")["population"].max().sum())
    missed = total(fraud["weight"].to_numpy(), genuine["weight"].to_numpy(), population)
    weighted = (fraud["weight"] * fraud["amount"]).to_numpy()
    known = covered["amount"][is_fraud] if is_fraud.any() else covered["amount"][is_drawn]
    low, high = intervals.of_sum(weighted, float(covered["weight"].max() * known.max()))
    seen = float(fraud["amount"].sum())
    high = max(seen, high) if missed.high > len(fraud) else seen
    return Missed(
        first=covered["day"].min(),
        last=covered["day"].max(),
        days=covered["day"].nunique(),
        cases=len(listed),
        found=len(found),
        found_amount=float(found["amount"].sum()),
        drawn=len(fraud) + len(genuine),
        drawn_fraud=len(fraud),
        population=population,
        undecided=int((~is_fraud & ~is_genuine).sum()),
        precision=_share(len(found), len(listed)),
        naive_recall=_share(len(found), len(found) + len(fraud)),
        recall=_recall(len(found), missed),
        missed=missed,
        missed_amount=Estimate(float(weighted.sum()), max(seen, low), high),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _recall(found: int, missed: Estimate) -> Estimate:
    value = _share(found, found + (missed.value or 0.0))
    low, high = (_share(found, found + limit) for limit in (missed.high, missed.low))
    return Estimate(value, 0.0 if low is None else low, 1.0 if high is None else high)


def weights(queue: pa.Table, verdicts: Mapping[str, str]) -> dict[str, float]:
    """Return how many each decided item represents, by its id: of a listed case 1.

    The arguments are those of :func:`over`. Items of days without a decided draw are left out.
    """
    items = _with_weights(_items(queue, verdicts, {}))
    decided = items[items["verdict"].isin((FRAUD, GENUINE))]
    return dict(zip(decided["item_id"], decided["weight"].astype(float), strict=True))


def precision_by_rule(
    alerts: pa.Table, queue: pa.Table, verdicts: Mapping[str, str], cases: Mapping[str, str]
) -> dict[str, Precision]:
    """Estimate the precision of each rule over all its alerts of the days that have a queue with a decided draw.

    A list shows the most valuable cases, so the precision of listed alerts says little about the others. Of those, the
    drawn accounts tell, each with its weight. An account's day is right if the verdict on its case, or on the drawn
    account, is fraud.

    Args:
        alerts: rows of ``silver_alerts``: ``rule, alert_id, account_id, day`` (the date of ``timestamp``).
        queue: rows of ``gold_review_queue``, :data:`QUEUE_COLUMNS`.
        verdicts: the latest verdict on each decided item, by its id.
        cases: the id of the case of each alert.
    """
    items = _with_weights(_items(queue, verdicts, {}))
    is_drawn = items["kind"] == _DRAWN
    listed = items[~is_drawn].set_index("item_id")["verdict"]
    drawn = items[is_drawn].set_index(["day", "account_id"])[["verdict", "weight"]]
    rows = alerts.select(["rule", "alert_id", "account_id", "day"]).to_pandas()
    rows = rows[rows["day"].isin(items["day"])]
    case = rows["alert_id"].map(cases)
    rows["is_listed"] = case.isin(listed.index)
    rows["verdict"] = case.map(listed)
    rows = rows.join(drawn, on=["day", "account_id"], rsuffix="_drawn")
    rows["verdict"] = rows["verdict"].where(rows["is_listed"], rows["verdict_drawn"])
    # Of an account's alerts on a day one case may be listed and another not: a listed one makes the day listed.
    rows = rows.sort_values(["is_listed", "verdict"], ascending=[False, True], kind="stable")
    units = rows.drop_duplicates(["rule", "day", "account_id"])
    return {str(rule): _precision(of_rule) for rule, of_rule in units.groupby("rule")}


def _precision(units: pd.DataFrame) -> Precision:
    is_fraud, is_genuine = (units["verdict"] == verdict for verdict in (FRAUD, GENUINE))
    is_listed = units["is_listed"]
    right, listed = int((is_listed & is_fraud).sum()), int((is_listed & (is_fraud | is_genuine)).sum())
    unlisted = int((~is_listed).sum())
    hits, others = (units["weight"][~is_listed & chosen].to_numpy() for chosen in (is_fraud, is_genuine))
    drawn = len(hits) + len(others)
    if drawn:
        # It is known for how many account's days these few stand, so the weights add up to them.
        scale = unlisted / (hits.sum() + others.sum())
        rest = total(hits * scale, others * scale, unlisted)
    else:
        rest = Estimate(None if unlisted else 0.0, 0.0, unlisted)
    whole = listed + unlisted
    value = None if rest.value is None else _share(right + rest.value, whole)
    low, high = (_share(right + limit, whole) for limit in (rest.low, rest.high))
    weighted = Estimate(value, 0.0 if low is None else low, 1.0 if high is None else high)
    return Precision(listed, right, unlisted, drawn, _share(right, listed), weighted)


def total(hits: Floats, others: Floats, of: float) -> Estimate:
    """Estimate how many of ``of`` units are hits, from those that were drawn.

    Args:
        hits: the weights of drawn units that are hits: the number of units that each represents.
        others: the weights of the other drawn units.
        of: the number of units.
    """
    largest = float(max(hits.max(initial=0), others.max(initial=0)))
    (low, high), (fewest, most) = intervals.of_sum(hits, largest), intervals.of_sum(others, largest)
    low, high = max(low, of - most, len(hits)), min(high, of - fewest, of - len(others))
    return Estimate(float(hits.sum()), min(low, high), high)
