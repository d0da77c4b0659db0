"""Verdicts: decisions of the review become rows of ``silver_verdicts``, each once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake.desk import review
from fraudlake.sql_text import one_of, value
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, SILVER_VERDICTS

if TYPE_CHECKING:
    from fraudlake.desk.review import Event
    from fraudlake.desk.store import Store

_KEYS = ("transaction_id", "analyst", "decided_at")
_AT_ONCE = 1_000


def follow(store: Store, events: Iterable[Event] | None = None) -> int:
    """Write the verdicts of events that ``silver_verdicts`` lacks; ``unsure`` is none.

    Args:
        store: the lake's tables.
        events: the events; by default all, for what a killed process has left.

    Returns:
        How many rows were lacking.
    """
    decided: list[dict[str, Any]] = [
        {
            "transaction_id": transaction,
            "verdict": event.verdict == "fraud",
            "analyst": event.analyst,
            "reason": event.reason,
            "decided_at": event.at,
        }
        for event in (review.of_lake(store) if events is None else events)
        if event.is_verdict and event.verdict != "unsure"
        for transaction in event.transaction_ids
    ]
    if not decided:
        return 0
    known = _known(store, decided)
    new = [row for row in decided if tuple(row[key] for key in _KEYS) not in known]
    written = 0
    for begin in range(0, len(new), _AT_ONCE):
        part = new[begin : begin + _AT_ONCE]
        dates = _dates(store, [row["transaction_id"] for row in part])
        # A transaction that was forgotten meanwhile has none.
        rows = [{**row, "date": dates[row["transaction_id"]]} for row in part if row["transaction_id"] in dates]
        if rows:
            store.insert(SILVER_VERDICTS, pa.Table.from_pylist(rows, SILVER_VERDICTS.schema), _KEYS)
        written += len(rows)
    return written


def _known(store: Store, decided: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    since = min(row["decided_at"] for row in decided)
    statement = f"SELECT {', '.join(_KEYS)} FROM {SILVER_VERDICTS.name} WHERE decided_at >= {value(since)}"
    return {tuple(row.values()) for row in store.query(statement, SILVER_VERDICTS).to_pylist()}


def _dates(store: Store, transactions: list[str]) -> dict[str, Any]:
    """Return the dates (UTC) of transactions: of those of alerts by these, which are few."""
    found: dict[str, Any] = {}
    of_alerts = f"SELECT DISTINCT transaction_id, CAST(timestamp AS DATE) AS date FROM {SILVER_ALERTS.name}"
    of_all = f"SELECT transaction_id, date FROM {SILVER_TRANSACTIONS.name}"
    for statement, table in ((of_alerts, SILVER_ALERTS), (of_all, SILVER_TRANSACTIONS)):
        left = [one for one in dict.fromkeys(transactions) if one not in found]
        if left:
            rows = store.query(f"{statement} WHERE {one_of('transaction_id', left)}", table).to_pylist()
            found |= {row["transaction_id"]: row["date"] for row in rows}
    return found
