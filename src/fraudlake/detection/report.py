"""Report: counts the alerts of a rule over a range of history, and measures them against the truth."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.detection import evidence
from fraudlake.entity import ACCOUNT
from fraudlake.times.calendar import EPOCH, MICROSECOND
from fraudlake.values import bounded

if TYPE_CHECKING:
    from fraudlake.rules.kinds import Rule

SAMPLES = 5
Sample = tuple[int, int, str]
"""An alert that may be shown as an example: a hash that decides the draw, its time (microseconds) and its story."""
TRUTHS = ("labels", "verdicts")
"""The lists of an alert with the truth about each of its transactions: Flink's labels, and the latest verdicts."""


@dataclass(frozen=True)
class Range:
    """Silver's rows of the range: their number, first and last day (UTC), and the fraud by Flink's label."""

    transactions: int
    first: date | None
    last: date | None
    fraud: int


@dataclass(frozen=True)
class Agreement:
    """How alerts agree with one source of the truth.

    An alert is right if one of its transactions is fraud; fraud is detected if it is in an alert.
    """

    alerts_with_truth: int
    """Alerts with a transaction whose truth is known."""
    right_alerts: int
    fraud: int
    """Fraudulent transactions of the range."""
    detected_fraud: int

    @property
    def precision(self) -> float | None:
        """Share of the alerts with a known truth that are right."""
        return self.right_alerts / self.alerts_with_truth if self.alerts_with_truth else None

    @property
    def recall(self) -> float | None:
        """Share of the fraud that was detected."""
        return self.detected_fraud / self.fraud if self.fraud else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True)
class Report:
    """The figures of a backtest."""

    rule: str
    kind: str
    transactions: int
    first: date | None
    last: date | None
    alerts: int
    accounts: int
    entity: str
    """The entity that the rule groups by; the account if there are no alerts."""
    keys: int
    """Number of distinct keys of the entity among the alerts."""
    alerts_per_day: dict[str, int]
    amount_at_risk: float
    """Sum of the amounts of the last transactions of alerts, each transaction counted once: in account currency, or in
    the base currency of the lake."""
    by_label: Agreement
    by_verdict: Agreement
    samples: list[str]
    suppressed: int = 0
    """Further alerts that list entries suppress; no other figure here includes them."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        agreements = {"by_label": self.by_label.as_dict(), "by_verdict": self.by_verdict.as_dict()}
        return {**asdict(self), **agreements}


class Tally:
    """Counts alerts in chunks. All alerts of a key are in one tally; those of an account may be in several."""

    def __init__(self, begin: datetime | None = None) -> None:
        """Begin without alerts; fraud before ``begin``, to which a rule looks back, is not detected in the range."""
        self._begin = begin
        self._alerts = 0
        self._entity = ACCOUNT
        self._accounts: set[str] = set()
        self._keys: set[str] = set()
        self._amounts: dict[str, float] = {}
        self._days: Counter[str] = Counter()
        self._truths = {name: _Truth() for name in TRUTHS}
        self._samples: list[Sample] = []

    def add(self, alerts: pa.Table) -> None:
        """Count alerts with :data:`evidence.COLUMNS` and, if present, ``verdicts``, a list of the latest verdicts."""
        if not len(alerts):
            return
        self._alerts += len(alerts)
        self._entity = alerts["entity"][0].as_py()
        self._keys.update(pc.unique(alerts["entity_key"]).to_pylist())
        self._accounts.update(pc.unique(alerts["account_id"]).to_pylist())
        self._amounts.update(
            zip(alerts["transaction_id"].to_pylist(), alerts["summed_amount"].to_pylist(), strict=True)
        )
        for day in pc.value_counts(alerts["time"].cast(pa.date32())).to_pylist():
            self._days[day["values"].isoformat()] += day["counts"]
        for name, truth in self._truths.items():
            if name in alerts.column_names:
                truth.add(alerts["transaction_ids"], alerts[name], self._in_range(alerts))
        self._samples = nsmallest(SAMPLES, [*self._samples, *_drawn(alerts)])

    def _in_range(self, alerts: pa.Table) -> pa.ChunkedArray | bool:
        """Return which transactions of the evidence are not before the beginning."""
        if self._begin is None:
            return True
        return pc.greater_equal(pc.list_flatten(alerts["times"]), (self._begin - EPOCH) // MICROSECOND)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, for :func:`report`. Accounts are named only if they are not the keys."""
        return {
            "alerts": self._alerts,
            "entity": self._entity,
            "keys": len(self._keys),
            "accounts": [] if self._entity == ACCOUNT else sorted(self._accounts),
            "amount": math.fsum(bounded(amount or 0.0) for amount in self._amounts.values()),
            "days": self._days,
            "truths": {name: truth.counts for name, truth in self._truths.items()},
            "samples": self._samples,
        }


class _Truth:
    """Counts alerts with a known truth, right alerts, and the fraud in them."""

    def __init__(self) -> None:
        self._known = self._right = 0
        self._detected: set[str] = set()

    def add(self, ids: pa.ChunkedArray, truths: pa.ChunkedArray, in_range: pa.ChunkedArray | bool) -> None:
        alert = pc.list_parent_indices(ids)
        named = pc.list_flatten(ids)
        truth = pc.list_flatten(truths)
        is_fraud = truth.fill_null(False)
        self._known += _distinct(alert.filter(truth.is_valid()))
        self._right += _distinct(alert.filter(is_fraud))
        self._detected.update(pc.unique(named.filter(pc.and_(is_fraud, in_range))).to_pylist())

    @property
    def counts(self) -> tuple[int, int, int]:
        return self._known, self._right, len(self._detected)


def report(rule: Rule, tallies: Iterable[Mapping[str, Any]], history: Range, fraud_by_verdict: int) -> Report:
    """Add up what tallies have counted.

    Args:
        rule: the rule.
        tallies: from :meth:`Tally.as_dict`.
        history: the transactions of the range.
        fraud_by_verdict: transactions of the range that the latest verdict calls fraud.
    """
    parts = [part for part in tallies if part["alerts"]]
    days: Counter[str] = Counter()
    for part in parts:
        days.update(part["days"])
    accounts = {account for part in parts for account in part["accounts"]}
    keys = sum(part["keys"] for part in parts)
    entity = parts[0]["entity"] if parts else ACCOUNT
    label, verdict = (
        Agreement(with_truth, right, fraud, detected)
        for fraud, (with_truth, right, detected) in (
            (fraud, [sum(part["truths"][name][place] for part in parts) for place in range(3)])
            for name, fraud in zip(TRUTHS, (history.fraud, fraud_by_verdict), strict=True)
        )
    )
    return Report(
        rule=rule.name,
        kind=rule.kind,
        transactions=history.transactions,
        first=history.first,
        last=history.last,
        alerts=sum(part["alerts"] for part in parts),
        accounts=keys if entity == ACCOUNT else len(accounts),
        entity=entity,
        keys=keys,
        alerts_per_day=dict(sorted(days.items())),
        amount_at_risk=math.fsum(part["amount"] for part in parts),
        by_label=label,
        by_verdict=verdict,
        samples=_by_time(sample for part in parts for sample in part["samples"]),
    )


def with_verdicts(alerts: pa.Table, verdicts: Mapping[str, bool]) -> pa.Table:
    """Add to alerts the latest verdicts on their transactions; ``verdicts`` are given by transaction id."""
    decided = pa.table({"id": pa.array(verdicts, pa.string()), "truth": pa.array(verdicts.values(), pa.bool_())})
    ids = alerts["transaction_ids"].combine_chunks()
    truth = decided["truth"].take(pc.index_in(ids.flatten(), decided["id"])).combine_chunks()
    offsets = pc.subtract(ids.offsets, ids.offsets[0])
    return alerts.append_column("verdicts", pa.ListArray.from_arrays(offsets, truth))


def _drawn(alerts: pa.Table) -> Iterator[Sample]:
    hashes = (zlib.crc32(name.encode()) for name in alerts["transaction_id"].to_pylist())
    drawn = nsmallest(SAMPLES, ((hash_, number) for number, hash_ in enumerate(hashes)))
    shown = alerts.take(pa.array([number for _, number in drawn], pa.int64()))
    times = shown["time"].cast(pa.int64()).to_pylist()
    stories = map(evidence.story, shown.to_pylist())
    return zip((hash_ for hash_, _ in drawn), times, stories, strict=True)


def _by_time(samples: Iterable[Sample]) -> list[str]:
    """Return the stories of the first samples of the draw, in the order of time."""
    drawn = nsmallest(SAMPLES, samples)
    return [story for _, _, story in sorted(drawn, key=itemgetter(1, 2))]


def _distinct(values: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(values, mode="all").as_py())
