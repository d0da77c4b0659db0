"""Item state: what the events of an item amount to: who holds it, what it waits for, and the verdict that counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fraudlake.review.event import Event
from fraudlake.review.item import Item

_FOR_ANYBODY: dict[str, Any] = {"waits_until": None, "assignee": None, "is_escalated": False}
"""The fields of a state that a decision resets: the item neither waits nor is meant for anybody."""


@dataclass(frozen=True)
class State:
    """The state of an item after its events."""

    time: datetime
    """The item's time: now, or that of its last event if that is later."""
    holder: str | None = None
    """Who has taken it; None if nobody has, or their lock has expired."""
    expires_at: datetime | None = None
    """When the holder's lock expires."""
    waits_until: datetime | None = None
    """Until when it is not offered to anybody; None: it is not waiting."""
    assignee: str | None = None
    """Who should decide; None: anybody."""
    is_escalated: bool = False
    """Whether a lead should decide."""
    last: Event | None = None
    """The last event."""
    decision: Event | None = None
    """The last verdict, which counts; None if there is none, or it was withdrawn."""
    decided: frozenset[str] = frozenset()
    """The transactions that verdicts cover."""
    agreeing: frozenset[str] = frozenset()
    """The analysts of the latest consecutive verdicts with the same labels."""
    merged: Event | None = None
    """The event that merged it into another case."""
    attached: int = 0
    """Number of attached files."""

    def is_offered(self, analyst: str, is_lead: bool) -> bool:
        """Return whether an analyst may get it as the next item; anybody may still take it by its id."""
        if self.holder is not None or self.waits_until is not None:
            return self.holder == analyst
        return self.assignee == analyst if self.assignee else is_lead or not self.is_escalated

    @property
    def wants_second_look(self) -> bool:
        """Whether one analyst alone has found fraud: on a drawn account, an error has the weight of many."""
        return self.decision is not None and bool(self.decision.fraud_ids) and len(self.agreeing) < 2

    def covers(self, item: Item) -> bool:
        """Return whether verdicts cover all of an item; a case may have got alerts since."""
        return self.decision is not None and self.decided >= set(item.transaction_ids)


def state(events: Iterable[Event], now: datetime) -> State:
    """Return the state of one item after its events, which are given in the order of their numbers."""
    so_far = State(datetime.min.replace(tzinfo=UTC))
    for event in events:
        so_far = _after(so_far, event)
    return replace(so_far, **_passed(so_far, now))


def states(events: Iterable[Event], now: datetime, names: Mapping[str, str] | None = None) -> dict[str, State]:
    """Return the state of each item that has events.

    Args:
        events: events in the order of their numbers.
        now: the time.
        names: the current ids of items, by the ids that events may have for them, such as an alert's.

    Returns:
        The states by the current ids.
    """
    by_item: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_item[(names or {}).get(event.item_id, event.item_id)].append(event)
    return {item: state(of_item, now) for item, of_item in by_item.items()}


def _passed(before: State, now: datetime) -> dict[str, Any]:
    """Return the fields of an item's state that time changes: locks and waits expire, and its time never goes back."""
    passed: dict[str, Any] = {"time": max(before.time, now)}
    if before.waits_until is not None and passed["time"] >= before.waits_until:
        passed["waits_until"] = None
    if before.expires_at is not None and passed["time"] >= before.expires_at:
        passed |= {"holder": None, "expires_at": None}
    return passed


def _after(before: State, event: Event) -> State:
    passed = _passed(before, event.at)
    return replace(before, **passed | _changes(before, event, passed.get("holder", before.holder)), last=event)


def _changes(before: State, event: Event, holder: str | None) -> dict[str, Any]:
    """Return the fields of an item's state that an event changes."""
    if event.kind == "taken":
        # Joined cases may each have been taken before: the first analyst holds the item.
        is_first = holder in (None, event.analyst)
        return {"holder": event.analyst, "expires_at": event.expires_at, "waits_until": None} if is_first else {}
    if event.kind in ("noted", "opened"):
        return {}
    if event.kind == "attached":
        return {"attached": before.attached + 1}
    given_back: dict[str, Any] = {"holder": None, "expires_at": None}
    if event.kind in ("merged", "separated"):
        merged = event if event.kind == "merged" and event.merged_into else None
        return {**given_back, **_FOR_ANYBODY, "merged": merged}
    if event.kind == "waiting":
        return {**given_back, "waits_until": event.expires_at}
    if event.kind in ("assigned", "escalated"):
        return {**given_back, "assignee": event.assignee, "is_escalated": event.kind == "escalated"}
    if event.is_verdict:
        decided = before.decided | set(event.transaction_ids)
        agrees = before.decision is not None and before.decision.labels == event.labels
        agreeing = frozenset([event.analyst]) | (before.agreeing if agrees else frozenset())
        decision = {"decision": event, "decided": decided, "agreeing": agreeing}
        return {**given_back, **_FOR_ANYBODY, **decision}
    if event.kind == "withdrawn":
        return {**given_back, "decision": None, "decided": frozenset(), "agreeing": frozenset()}
    return given_back
