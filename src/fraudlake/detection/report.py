"""Report: the alerts of a rule over a range of history become figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.detection import evidence
from fraudlake.rules.any_rule import ACCOUNT

if TYPE_CHECKING:
    from fraudlake.rules.kinds import Rule

SAMPLES = 5


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

    An alert is right if one of its transactions is fraud; fraud is detected if an alert has it.
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
    """What the rule is by; the account, if there are no alerts."""
    keys: int
    """Different keys of the entity that alerts have."""
    alerts_per_day: dict[str, int]
    amount_at_risk: float
    """Sum of the amounts of the transactions that alerts end with, each counted once."""
    by_label: Agreement
    by_verdict: Agreement
    samples: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        agreements = {"by_label": self.by_label.as_dict(), "by_verdict": self.by_verdict.as_dict()}
        return {**asdict(self), **agreements}


def report(rule: Rule, alerts: pa.Table, history: Range, verdicts: Mapping[str, bool]) -> Report:
    """Count alerts.

    Args:
        rule: the rule.
        alerts: its alerts, :data:`evidence.COLUMNS`, in order.
        history: what there was to find.
        verdicts: analysts' latest verdicts on transactions of the range, by their ids; true is fraud.
    """
    ends = alerts.group_by("transaction_id", use_threads=False).aggregate([("amount", "last")])["amount_last"]
    days = pc.value_counts(alerts["time"].cast(pa.date32())).to_pylist()
    decided = pa.table({"id": pa.array(verdicts, pa.string()), "truth": pa.array(verdicts.values(), pa.bool_())})
    named = _flat(alerts["transaction_ids"])
    by_verdict = decided["truth"].take(pc.index_in(named, decided["id"]))
    alert = pc.list_parent_indices(alerts["transaction_ids"])
    step = max(1, len(alerts) // SAMPLES)
    return Report(
        rule=rule.name,
        kind=rule.kind,
        transactions=history.transactions,
        first=history.first,
        last=history.last,
        alerts=len(alerts),
        accounts=_distinct(alerts["account_id"]),
        entity=alerts["entity"][0].as_py() if len(alerts) else ACCOUNT,
        keys=_distinct(alerts["entity_key"]),
        alerts_per_day=dict(sorted((day["values"].isoformat(), day["counts"]) for day in days)),
        amount_at_risk=sum(amount or 0.0 for amount in ends.to_pylist()),
        by_label=_agreement(alert, named, _flat(alerts["labels"]), history.fraud),
        by_verdict=_agreement(alert, named, by_verdict, sum(verdicts.values())),
        samples=[
            evidence.story(row)
            for row in alerts.take(pa.array(range(0, len(alerts), step)[:SAMPLES], pa.int64())).to_pylist()
        ],
    )


def _flat(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.list_flatten(lists)


def _distinct(values: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(values, mode="all").as_py())


def _agreement(alert: pa.ChunkedArray, named: pa.ChunkedArray, truth: pa.ChunkedArray, fraud: int) -> Agreement:
    """Compare alerts with a truth; the three have an entry for each transaction of each alert."""
    is_fraud = truth.fill_null(False)
    known, right, detected = alert.filter(truth.is_valid()), alert.filter(is_fraud), named.filter(is_fraud)
    return Agreement(_distinct(known), _distinct(right), fraud, _distinct(detected))
