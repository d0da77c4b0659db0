"""Evidence: the rows that raised an alert become its columns, and a sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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
    times = rows["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = {"times": times, "transaction_ids": rows["transaction_id"], "amounts": rows["amount"]}
    columns["labels"] = rows["label"]
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
            **{name: rows[name].take(last) for name in ("account_id", "transaction_id", "amount")},
            "roles": pa.ListArray.from_arrays(offsets, roles),
            **{name: lists[name] for name in ("transaction_ids", "times", "amounts", "labels")},
            "measures": measures,
        }
    )


def story(alert: Mapping[str, Any]) -> str:
    """Tell an alert as a sentence: the account, its transactions with what they are called, and the measures."""
    transactions = [*zip(alert["roles"], alert["amounts"], alert["times"], strict=True)]
    if len(transactions) > 6:
        more = f"{len(transactions) - 6} more"
        parts = [*map(_part, transactions[:3]), more, *map(_part, transactions[-3:])]
    else:
        parts = [*map(_part, transactions)]
    measures = ", ".join(f"{name} {value}" for name, value in json.loads(alert["measures"]).items())
    return f"Account {alert['account_id']}: {', '.join(parts)} (UTC); {measures}."


def _part(transaction: tuple[str, float, int]) -> str:
    role, amount, time = transaction
    return f"{role} {amount:.2f} at {datetime.fromtimestamp(time / 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"
