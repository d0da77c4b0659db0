"""Verdicts: writes the decisions of the review to ``silver_verdicts`` exactly once; the latest verdict counts."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake.errors import FraudlakeError
from fraudlake.review import cases, event_log
from fraudlake.review.event import Event
from fraudlake.review.event_log import Wanted
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, SILVER_VERDICTS
from fraudlake.text.sql_text import one_of, value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item
    from fraudlake.review.item_state import State
    from fraudlake.review.window import Window

_LOG = logging.getLogger("fraudlake.desk")
_KEYS = ("transaction_id", "analyst", "decided_at")
_AT_ONCE = 1_000


def latest(store: Store, window: Window) -> dict[str, bool]:
    """Return the latest verdict (true for fraud) on each transaction of a range, by its id."""
    rows = store.query(
        f"SELECT transaction_id, verdict FROM {SILVER_VERDICTS.name} WHERE {window.sql} "
        "ORDER BY decided_at, verdict NULLS FIRST",
        SILVER_VERDICTS,
    ).to_pylist()
    decided = {row["transaction_id"]: row["verdict"] for row in rows}
    return {id_: verdict for id_, verdict in decided.items() if verdict is not None}


def record(store: Store, wanted: Sequence[Wanted]) -> list[Event | FraudlakeError]:
    """Write events and the labels that follow from them: see :func:`event_log.record_all`.

    If the labels cannot be written, only a warning is logged: the next call of :func:`follow` writes them.
    """
    outcomes = event_log.record_all(store, wanted)
    pairs = zip(wanted, outcomes, strict=True)
    labelled = [one.item for one, event in pairs if isinstance(event, Event) and event.is_label]
    try:
        if labelled:
            follow(store, *labelled)
    except FraudlakeError as error:
        names = ", ".join(item.item_id for item in labelled)
        _LOG.warning("silver_verdicts does not have the verdict on %s yet: %s", names, error)
    return outcomes


def record_one(
    store: Store, item: Item, event_id: str, make: Callable[[State], Event], is_agreed: bool = False
) -> Event:
    """Write an event and its labels, batched with concurrent writes of this process: see :func:`event_log.record`.

    ``make`` may read only the item's own state, since events of other items may be in the same commit.
    """
    outcome = store.together(record, Wanted(item, event_id, make, is_agreed))
    if isinstance(outcome, FraudlakeError):
        raise outcome
    return outcome


def follow(store: Store, *items: Item) -> int:
    """Write the labels from the events of items that ``silver_verdicts`` lacks.

    An item has the labels of its last event. If that is unsure or withdraws the verdict, rows with a null verdict
    withdraw the labels of earlier events.

    Args:
        store: the lake's tables.
        items: the items; none: all that have events, to finish what a killed process left.

    Returns:
        The number of rows written.
    """
    by_item: dict[str, list[Event]] = defaultdict(list)
    names = {name: item.item_id for item in items for name in item.names}
    events = event_log.read_events_of_items(store, names) if items else event_log.read_events(store)
    if events and not items:
        names = cases.cases_by_alert(store)
    for event in events:
        by_item[names.get(event.item_id, event.item_id)].append(event)
    labels = [row for events in by_item.values() for row in _labels(events)]
    if not labels:
        return 0
    stored = _loaded_already(store, labels)
    new = [row for row in labels if tuple(row[key] for key in _KEYS) not in stored]
    written = 0
    for begin in range(0, len(new), _AT_ONCE):
        part = new[begin : begin + _AT_ONCE]
        dates = _dates(store, [row["transaction_id"] for row in part])
        # A transaction that was forgotten in the meantime has no date.
        rows = [{**row, "date": dates[row["transaction_id"]]} for row in part if row["transaction_id"] in dates]
        if rows:
            store.insert(SILVER_VERDICTS, pa.Table.from_pylist(rows, SILVER_VERDICTS.schema), _KEYS)
        written += len(rows)
    return written


def _labels(events: Iterable[Event]) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``silver_verdicts`` for the events of an item, in the order of the events."""
    labelled: set[str] = set()
    for event in events:
        if not event.is_label:
            continue
        for transaction, verdict in event.labels.items():
            if verdict is not None or transaction in labelled:
                yield {
                    "transaction_id": transaction,
                    "verdict": verdict,
                    "analyst": event.analyst,
                    "reason": event.reason,
                    "decided_at": event.at,
                }
        labelled |= {transaction for transaction, verdict in event.labels.items() if verdict is not None}


def _loaded_already(store: Store, decided: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    since = min(row["decided_at"] for row in decided)
    statement = f"SELECT {', '.join(_KEYS)} FROM {SILVER_VERDICTS.name} WHERE decided_at >= {value(since)}"
    return {tuple(row.values()) for row in store.query(statement, SILVER_VERDICTS).to_pylist()}


def _dates(store: Store, transactions: list[str]) -> dict[str, Any]:
    """Return the dates (UTC) of transactions, first from the alerts, a much smaller table."""
    by_transaction: dict[str, Any] = {}
    of_alerts = f"SELECT DISTINCT transaction_id, CAST(timestamp AS DATE) AS date FROM {SILVER_ALERTS.name}"
    of_all = f"SELECT transaction_id, date FROM {SILVER_TRANSACTIONS.name}"
    for statement, table in ((of_alerts, SILVER_ALERTS), (of_all, SILVER_TRANSACTIONS)):
        left = [one for one in dict.fromkeys(transactions) if one not in by_transaction]
        if left:
            rows = store.query(f"{statement} WHERE {one_of('transaction_id', left)}", table).to_pylist()
            by_transaction |= {row["transaction_id"]: row["date"] for row in rows}
    return by_transaction
