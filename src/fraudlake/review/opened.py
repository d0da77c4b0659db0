"""Opened by hand: makes rows like those of ``gold_cases`` and ``gold_review_queue`` from the events that open cases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from fraudlake.review import cases, event_log, payments
from fraudlake.tables import GOLD_REVIEW_QUEUE
from fraudlake.values import bounded

if TYPE_CHECKING:
    from datetime import date

    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event


def id_of(event_id: str) -> str:
    """Return the id of the case that an event opens; a repeated event opens the same case."""
    return hashlib.sha256(f"opened {event_id}".encode()).hexdigest()


def rows(store: Store, is_wanted: Callable[[Event], bool], has_payments: bool = True) -> list[dict[str, Any]]:
    """Return the cases that were opened by hand by events that fulfil a condition.

    Each has the columns of ``gold_cases``, without alerts and with the times of its payments; ``detected_at`` is when
    it was opened. For the queue it also has ``day``, and ``reasons``, a sentence on who opened it and why.

    Args:
        store: the lake's tables.
        is_wanted: the condition.
        has_payments: look up the payments; otherwise the times are when it was opened, and the amount is 0.
    """
    events = [
        event for event in event_log.read_events_of_cases(store) if event.kind == cases.OPENED and is_wanted(event)
    ]
    ids = {id_ for event in events for id_ in event.transaction_ids} if has_payments else ()
    paid = payments.by_id(store, ids)
    return [_case(event, paid) for event in events]


def read_day(store: Store, day: date) -> list[dict[str, Any]]:
    """Return the cases that are in the queue of a day, in the order in which they were opened."""
    return rows(store, lambda event: event.day == day)


def named(store: Store, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return cases, whether of alerts or opened by hand, by their ids or ids of their alerts."""
    raised = cases.named(store, names)
    others = {*names} - raised.keys()
    by_hand = rows(store, lambda event: event.item_id in others) if others else []
    return raised | {row["case_id"]: row for row in by_hand}


def queued(case: Mapping[str, Any], rank: int | None = None) -> dict[str, Any]:
    """Return a case that was opened by hand as a row of the queue."""
    of_case = {name: case.get(name) for name in GOLD_REVIEW_QUEUE.column_names}
    return {**of_case, "kind": cases.OPENED, "item_id": case["case_id"], "rank": rank, "built_at": case["detected_at"]}


def _case(event: Event, rows_by_id: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    # row_retention may have removed payments.
    paid = [rows_by_id[id_] for id_ in event.transaction_ids if id_ in rows_by_id]
    times = [payment["timestamp"] for payment in paid] or [event.at]
    return {
        "case_id": event.item_id,
        "entity": event.entity,
        "entity_key": event.entity_key,
        "account_id": event.account_id,
        "opened_at": min(times),
        "last_alert_at": max(times),
        "alerts": 0,
        "rules": [],
        "alert_ids": [],
        "transaction_ids": [*event.transaction_ids],
        "accounts": 1,
        "amount_at_risk": sum(bounded(payment["summed_amount"]) for payment in paid),
        "detected_at": event.at,
        "date": min(times).date(),
        "day": event.day,
        "reasons": f"opened by hand by {event.analyst}: {event.reason or 'the reason was erased'}",
    }
