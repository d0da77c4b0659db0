"""Backtest: a rule over a range of history becomes its alerts, and these become figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import json_text
from fraudlake.detection import evidence
from fraudlake.match_recognize import TIMESTAMP
from fraudlake.match_recognize.expressions import json_value
from fraudlake.rules.columns import query_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

SAMPLES = 5


def alerts(silver: DataFrame, rule: Rule, settings: Settings, tasks: int) -> DataFrame:
    """Evaluate a rule over transactions in event-time order.

    Args:
        silver: ``silver_transactions`` of the range.
        rule: the rule.
        settings: the declared columns.
        tasks: how many tasks share the accounts.

    Returns:
        The columns of :data:`evidence.COLUMNS`, in no order.

    Raises:
        UsageError: the rule does not suit the columns.
    """
    columns = query_columns(settings.columns)
    compiled = rule.compile(columns)

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            table = pa.Table.from_batches(present)
            # A rule travels to the task; a compiled one holds functions of numpy, which do not.
            of_rows = rule.compile(columns)
            yield from evidence.table(table, of_rows.evaluate(table).alerts, of_rows.columns).to_batches()

    names = dict.fromkeys((*evidence.NEEDS, *compiled.columns))
    rows = silver.select(*names)
    divided = rows.repartition(tasks, *compiled.partition_by) if compiled.partition_by else rows.coalesce(1)
    return divided.mapInArrow(evaluate, evidence.COLUMNS)


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


def in_order(alerts: pa.Table) -> pa.Table:
    """Sort alerts by time, account and transaction."""
    keys = [(name, "ascending") for name in ("time", "account_id", "transaction_id")]
    return alerts.sort_by(keys)


def matches(rule: Rule, alerts: pa.Table) -> list[str]:
    """Return alerts as a JSON object each, in which values are written as Flink prints them.

    A pattern gives what its query selects: by default the columns of ``PARTITION BY`` and the measures. An alert of a
    threshold also has ``accountId``, ``dt`` and ``transaction_id`` of the transaction that completed it.
    """
    measures: list[str] = alerts["measures"].to_pylist()
    if rule.kind != "threshold":
        return measures
    times = alerts["time"].cast(pa.int64()).to_pylist()
    accounts, transactions = (alerts[name].to_pylist() for name in ("account_id", "transaction_id"))
    return [
        json_text.dumps(
            {
                "accountId": account,
                "dt": json_value(time, TIMESTAMP),
                "transaction_id": transaction,
                **json.loads(computed),
            }
        )
        for account, time, transaction, computed in zip(accounts, times, transactions, measures, strict=True)
    ]


@dataclass(frozen=True)
class Range:
    """What silver holds of the range: its transactions, first and last day (UTC), and the fraud by Flink's label."""

    transactions: int
    first: date | None
    last: date | None
    fraud: int


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
