"""Evidence: the rows that raised an alert become its columns, and a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fraudlake import json_text

if TYPE_CHECKING:
    from fraudlake.rules.check import Alert

NEEDS = ("transaction_id", "account_id", "timestamp", "amount", "label", "source", "position")
"""The columns of silver that evidence is made of, and that order rows."""
COLUMNS = """
    time TIMESTAMP, account_id STRING, transaction_id STRING, amount DOUBLE, roles ARRAY<STRING>,
    transaction_ids ARRAY<STRING>, times ARRAY<BIGINT>, amounts ARRAY<DOUBLE>, labels ARRAY<BOOLEAN>, measures STRING
"""
"""An alert: its last transaction, then what each of its transactions is called, with id, event time (microseconds
since 1970 UTC), amount and Flink's label; ``measures`` is a JSON object."""


def table(rows: pa.Table, alerts: list[Alert]) -> pa.Table:
    """Return alerts in the columns of :data:`COLUMNS`.

    Args:
        rows: the rows that were evaluated; at least :data:`NEEDS`.
        alerts: their alerts.
    """
    times = _times(rows)
    columns = {"times": times, "transaction_ids": rows["transaction_id"], "amounts": rows["amount"]}
    columns["labels"] = rows["label"]
    offsets = pa.array([*accumulate((len(alert.rows) for alert in alerts), initial=0)], pa.int32())
    numbers = pa.array([row for alert in alerts for row in alert.rows], pa.int64())
    last = pa.array([alert.rows[-1] for alert in alerts], pa.int64())
    roles = pa.array([role for alert in alerts for role in alert.roles], pa.string())
    measures = pa.array([json_text.dumps(dict(alert.measures)) for alert in alerts], pa.string())
    lists = {
        name: pa.ListArray.from_arrays(offsets, column.take(numbers).combine_chunks())
        for name, column in columns.items()
    }
    return pa.table(
        {
            "time": times.take(last).cast(pa.timestamp("us", "UTC")),
            **{name: rows[name].take(last) for name in ("account_id", "transaction_id", "amount")},
            "roles": pa.ListArray.from_arrays(offsets, roles),
            **{name: lists[name] for name in ("transaction_ids", "times", "amounts", "labels")},
            "measures": measures,
        }
    )


class _Described(NamedTuple):
    """A transaction, as JSON behind its variable, and as a part of a sentence."""

    account_id: str
    transaction_id: str
    time: int
    amount: float
    json: str
    text: str


def described(rows: pa.Table, alerts: list[Alert]) -> pa.Table:
    """Return alerts with their texts.

    Windows share most of their rows, so the texts of a row are made once.

    Args:
        rows: the rows that were evaluated; at least :data:`NEEDS`.
        alerts: their alerts.

    Returns:
        ``account_id, transaction_id, time, amount`` of an alert's last transaction, ``first_transaction_id``,
        ``evidence`` and ``measures`` as JSON, and ``explanation``.
    """
    numbers = np.unique(np.fromiter((row for alert in alerts for row in alert.rows), np.int64))
    named = rows.select(["transaction_id", "account_id", "amount"]).take(pa.array(numbers))
    times = _times(rows).take(pa.array(numbers)).to_pylist()
    columns = (named[name].to_pylist() for name in named.column_names)
    described_rows = {
        number: _Described(account, id_, time, amount, _json(id_, time, amount), _text(amount, time))
        for number, id_, account, amount, time in zip(numbers.tolist(), *columns, times, strict=True)
    }
    variables = {role: json_text.dumps(role) for role in {role for alert in alerts for role in alert.roles}}
    described_alerts = []
    for alert in alerts:
        of_alert = [described_rows[row] for row in alert.rows]
        last, named_rows = of_alert[-1], [*zip(alert.roles, of_alert, strict=True)]
        evidence = (f'{{"variable": {variables[role]}, {row.json}' for role, row in named_rows)
        parts = [f"{role} {row.text}" for role, row in named_rows]
        described_alerts.append(
            {
                "account_id": last.account_id,
                "transaction_id": last.transaction_id,
                "time": last.time,
                "amount": last.amount,
                "first_transaction_id": of_alert[0].transaction_id,
                "evidence": f"[{', '.join(evidence)}]",
                "measures": json_text.dumps(dict(alert.measures)),
                "explanation": _sentence(last.account_id, parts, alert.measures),
            }
        )
    return pa.Table.from_pylist(described_alerts)


def story(alert: Mapping[str, Any]) -> str:
    """Tell an alert as a sentence: the account, its transactions with what they are called, and the measures."""
    transactions = zip(alert["roles"], alert["amounts"], alert["times"], strict=True)
    parts = [f"{role} {_text(amount, time)}" for role, amount, time in transactions]
    return _sentence(alert["account_id"], parts, json.loads(alert["measures"]))


def _times(rows: pa.Table) -> pa.ChunkedArray:
    return rows["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _json(transaction_id: str, time: int, amount: float) -> str:
    """Return a transaction's part of the evidence, behind its variable."""
    return json_text.dumps({"transaction_id": transaction_id, "time": time, "amount": amount})[1:]


def _text(amount: float, time: int) -> str:
    return f"{amount:.2f} at {datetime.fromtimestamp(time / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def _sentence(account: str, parts: Sequence[str], measures: Mapping[str, Any]) -> str:
    shown = parts if len(parts) <= 6 else [*parts[:3], f"{len(parts) - 6} more", *parts[-3:]]
    values = ", ".join(f"{name} {value}" for name, value in measures.items())
    return f"Account {account}: {', '.join(shown)} (UTC); {values}."
