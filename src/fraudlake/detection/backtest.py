"""Backtest: a rule over a range of history becomes its alerts, and these become figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake.rules import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.check import Alert
    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

ALERTS = """
    time TIMESTAMP, account_id STRING, transaction_id STRING, amount DOUBLE, roles ARRAY<STRING>,
    transaction_ids ARRAY<STRING>, times ARRAY<BIGINT>, amounts ARRAY<DOUBLE>, labels ARRAY<BOOLEAN>, measures STRING
"""
"""An alert: its last transaction, then what each of its transactions is called, with id, event time (microseconds
since 1970 UTC), amount and Flink's label; ``measures`` is a JSON object."""
_ALWAYS = ("transaction_id", "account_id", "timestamp", "amount", "label", "source", "position")
SAMPLES = 5


def alerts(silver: DataFrame, rule: Rule, settings: Settings, tasks: int) -> DataFrame:
    """Evaluate a rule over transactions in event-time order.

    Args:
        silver: ``silver_transactions`` of the range.
        rule: the rule.
        settings: the declared columns.
        tasks: how many tasks share the accounts.

    Returns:
        The columns of :data:`ALERTS`, in no order.

    Raises:
        UsageError: the rule does not suit the columns.
    """
    columns = query.columns(settings.columns)
    check = rule.check(columns)

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        present = [batch for batch in batches if batch.num_rows]
        if present:
            table = pa.Table.from_batches(present)
            # A rule travels to the task; what it was checked into holds functions of numpy, which do not.
            yield from _output(table, rule.check(columns).evaluate(table).alerts).to_batches()

    names = dict.fromkeys((*_ALWAYS, *check.columns))
    rows = silver.select(*names)
    divided = rows.repartition(tasks, *check.partition_by) if check.partition_by else rows.coalesce(1)
    return divided.mapInArrow(evaluate, ALERTS)


def _output(table: pa.Table, alerts: list[Alert]) -> pa.Table:
    times = table["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = {"times": times, "transaction_ids": table["transaction_id"], "amounts": table["amount"]}
    columns["labels"] = table["label"]
    offsets = pa.array([*accumulate((len(alert.rows) for alert in alerts), initial=0)], pa.int32())
    numbers = pa.array([row for alert in alerts for row in alert.rows], pa.int64())
    last = pa.array([alert.rows[-1] for alert in alerts], pa.int64())
    roles = pa.array([role for alert in alerts for role in alert.roles], pa.string())
    measures = pa.array([json.dumps(dict(alert.measures)) for alert in alerts], pa.string())
    lists = {
        name: pa.ListArray.from_arrays(offsets, column.take(numbers).combine_chunks())
        for name, column in columns.items()
    }
    return pa.table(
        {
            "time": times.take(last).cast(pa.timestamp("us", "UTC")),
            **{name: table[name].take(last) for name in ("account_id", "transaction_id", "amount")},
            "roles": pa.ListArray.from_arrays(offsets, roles),
            **{name: lists[name] for name in ("transaction_ids", "times", "amounts", "labels")},
            "measures": measures,
        }
    )


@dataclass(frozen=True)
class Agreement:
    """How alerts agree with one source of the truth.

    An alert is right if one of its transactions is fraud; fraud is found if an alert holds it.
    """

    judged_alerts: int
    """Alerts with a transaction whose truth is known."""
    right_alerts: int
    fraud: int
    """Fraudulent transactions of the range."""
    found_fraud: int

    @property
    def precision(self) -> float | None:
        """Share of the judged alerts that are right."""
        return self.right_alerts / self.judged_alerts if self.judged_alerts else None

    @property
    def recall(self) -> float | None:
        """Share of the fraud that was found."""
        return self.found_fraud / self.fraud if self.fraud else None

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
        alerts: its alerts, :data:`ALERTS`, in order.
        history: what there was to find.
        verdicts: analysts' latest verdicts on transactions of the range, by their ids; true is fraud.
    """
    rows = alerts.to_pylist()
    ends = {row["transaction_id"]: row["amount"] for row in rows}
    labels = [dict(zip(row["transaction_ids"], row["labels"], strict=True)) for row in rows]
    judged = [{name: verdicts[name] for name in row["transaction_ids"] if name in verdicts} for row in rows]
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
        by_verdict=_agreement(judged, sum(verdicts.values())),
        samples=[story(row) for row in rows[::step][:SAMPLES]],
    )


def _agreement(truths: list[dict[str, bool | None]] | list[dict[str, bool]], fraud: int) -> Agreement:
    known = [[truth for truth in alert.values() if truth is not None] for alert in truths]
    detected = {name for alert in truths for name, truth in alert.items() if truth}
    return Agreement(sum(map(bool, known)), sum(map(any, known)), fraud, len(detected))


def story(alert: Mapping[str, Any]) -> str:
    """Tell an alert as a sentence: the account, its transactions with what they are called, and the measures."""
    parts = [
        f"{role} {amount:.2f} at {datetime.fromtimestamp(time / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
        for role, amount, time in zip(alert["roles"], alert["amounts"], alert["times"], strict=True)
    ]
    if len(parts) > 6:
        parts = [*parts[:3], f"{len(parts) - 6} more", *parts[-3:]]
    measures = ", ".join(f"{name} {value}" for name, value in json.loads(alert["measures"]).items())
    return f"Account {alert['account_id']}: {', '.join(parts)} (UTC); {measures}."
