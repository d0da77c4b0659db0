"""Corrections: an approved correction of a verdict is written as the event of the person who asked for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fraudlake.approvals.gate import Effect
from fraudlake.review import corrections, event_log, items
from fraudlake.review.event import LABELS
from fraudlake_desk.review import verdicts

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.item_state import State

_LEAST = timedelta(microseconds=1)


def _state(store: Store, request: Request) -> dict[str, Any]:
    """Return what events say now of the payments of a request."""
    item = items.require(store, request.arguments["item_id"])
    payments = list(request.before)
    # A verdict overturns labels of all items; a withdrawal, or unsure, takes back those of its own item.
    if request.arguments.get("verdict") in LABELS:
        events = event_log.read_events_of_payments(store, payments)
    else:
        events = event_log.read_events_of_items(store, item.names)
    return dict(corrections.labels(events, payments))


def _carry_out(store: Store, request: Request) -> None:
    """Write the event, unless it was written before, and the labels that follow from it."""
    item = items.require(store, request.arguments["item_id"])
    event_id = request.event.event_id

    def make(before: State) -> Event:
        at = max(before.time, before.last.at + _LEAST) if before.last else before.time
        return corrections.event_of(request.arguments, event_id=event_id, at=at)

    verdicts.record_one(store, item, event_id, make, is_agreed=True)


EFFECT = Effect(_state, _carry_out)
"""How approved corrections take effect, in a store."""
