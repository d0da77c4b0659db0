"""Report: the alerts of a rule over a range of history become figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from fraudlake.detection import evidence
from fraudlake.rules.any_rule import ACCOUNT

if TYPE_CHECKING:
    import pyarrow as pa

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
    rows = alerts.to_pylist()
    ends = {row["transaction_id"]: row["amount"] for row in rows}
    labels = [dict(zip(row["transaction_ids"], row["labels"], strict=True)) for row in rows]
    decided = [{name: verdicts[name] for name in row["transaction_ids"] if name in verdicts} for row in rows]
    days = Counter(row["time"].date().isoformat() for row in rows)
    step = max(1, len(rows) // SAMPLES)
    return Report(
        rule=rule.name,
        kind=rule.kind,
        transactions=history.transactions,
        first=history.first,
        last=history.last,
        alerts=len(rows),
        accounts=len({row["account_id"] for row in rows}),
        entity=rows[0]["entity"] if rows else ACCOUNT,
        keys=len({row["entity_key"] for row in rows}),
        alerts_per_day=dict(sorted(days.items())),
        amount_at_risk=sum(amount or 0.0 for amount in ends.values()),
        by_label=_agreement(labels, history.fraud),
        by_verdict=_agreement(decided, sum(verdicts.values())),
        samples=[evidence.story(row) for row in rows[::step][:SAMPLES]],
    )


def _agreement(truths: list[dict[str, bool | None]] | list[dict[str, bool]], fraud: int) -> Agreement:
    known = [[truth for truth in alert.values() if truth is not None] for alert in truths]
    detected = {name for alert in truths for name, truth in alert.items() if truth}
    return Agreement(sum(map(bool, known)), sum(map(any, known)), fraud, len(detected))
