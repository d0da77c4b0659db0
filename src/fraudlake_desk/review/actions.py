"""Actions: make the event by which a person takes an item, decides on it or sets it aside, if its state allows that.

An item's time never goes back: each event is later than the item's event before it. A verdict covers payments: an
analyst marks those that are fraud, and the others that it covers are genuine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review.event import Event, Kind, Verdict
from fraudlake.review.item import Item
from fraudlake.review.item_state import State
from fraudlake.values import bounded

SetAside = Literal["noted", "waiting", "assigned", "escalated"]
_LONGEST_WAIT = timedelta(days=366)
_LEAST = timedelta(microseconds=1)


class TakenError(FraudlakeError):
    """Another analyst holds the item, or it is decided."""


def take(item: Item, before: State, analyst: str, lock: timedelta, event_id: str, is_again: bool = False) -> Event:
    """Return the event by which an analyst takes an item; the holder may take it again to extend the lock.

    Args:
        item: the item.
        before: its state.
        analyst: who takes it.
        lock: how long they hold it.
        event_id: the event's id.
        is_again: take a decided item, to correct the verdict.

    Raises:
        TakenError: another analyst holds it, or it is decided.
    """
    _require_free(item, before, analyst)
    if before.covers(item) and not is_again:
        raise TakenError(_decided(item, before))
    event = _event(item, before, "taken", analyst, event_id)
    return replace(event, expires_at=event.at + lock)


def release(item: Item, before: State, analyst: str, event_id: str, is_forced: bool = False) -> Event:
    """Return the event by which an analyst gives an item back, or, if forced, releases it from its holder.

    Raises:
        FraudlakeError: nobody holds it, or another analyst does and it is not forced.
    """
    if before.holder is None:
        raise FraudlakeError(f"nobody holds {item.item_id}")
    if not is_forced:
        _require_free(item, before, analyst)
    return _event(item, before, "released", analyst, event_id)


def decide(
    item: Item,
    before: State,
    analyst: str,
    verdict: Verdict,
    event_id: str,
    fraud: Mapping[str, float] | None = None,
    reason: str | None = None,
    note: str | None = None,
    is_correction: bool = False,
) -> Event:
    """Return the event by which an analyst decides on an item, which also releases it.

    The item need not have been taken; after the analyst's lock has expired, a verdict counts unless somebody else holds
    the item.

    Args:
        item: the item.
        before: its state.
        analyst: who decides.
        verdict: the verdict.
        event_id: the event's id.
        fraud: for a verdict of fraud, the amounts of the fraudulent payments by id, which may also be payments beyond
            the item's own; the other payments of the item are genuine.
        reason: why, in a few words.
        note: further text.
        is_correction: replace the present verdict.

    Raises:
        FraudlakeError: another analyst holds it, it is decided already, or a correction finds no verdict.
        UsageError: a verdict of fraud marks no payment, or a correction overturns a colleague's verdict without a
            reason.
    """
    _require_free(item, before, analyst)
    if before.covers(item) and not is_correction:
        raise TakenError(_decided(item, before))
    if before.decision is None and is_correction:
        raise FraudlakeError(f"nobody has decided on {item.item_id} yet, so there is nothing to correct")
    event = _event(item, before, "corrected" if is_correction else "verdict", analyst, event_id)
    event = replace(event, verdict=verdict, reason=_nonblank(reason), note=_nonblank(note))
    event = replace(event, transaction_ids=_to_label(item, before))
    if verdict == "fraud":
        event = _mark(item, event, fraud or {})
    last = before.decision
    if last and is_correction and last.analyst != analyst and last.labels != event.labels and not event.reason:
        raise UsageError(f"{last.analyst} decided {last.verdict} on {item.item_id}: give a reason to overturn that")
    return event


def _mark(item: Item, event: Event, fraud: Mapping[str, float]) -> Event:
    """Return the event with the marked payments and their amount."""
    if not fraud:
        raise UsageError(f"nothing of {item.item_id} is marked: name the payments that are fraud")
    # For a drawn account, only payments of its day count: the draw represents that day.
    counted = [amount for id_, amount in fraud.items() if item.case_id is not None or id_ in item.transaction_ids]
    about = dict.fromkeys([*event.transaction_ids, *fraud])
    return replace(event, transaction_ids=tuple(about), fraud_ids=tuple(fraud), fraud_amount=bounded(sum(counted)))


def withdraw(item: Item, before: State, analyst: str, event_id: str, reason: str | None = None) -> Event:
    """Return the event by which an analyst withdraws the verdict on an item, which reopens it.

    Raises:
        FraudlakeError: another analyst holds it, or there is no verdict.
    """
    _require_free(item, before, analyst)
    if before.decision is None:
        raise FraudlakeError(f"there is no verdict on {item.item_id} to withdraw")
    event = _event(item, before, "withdrawn", analyst, event_id)
    return replace(event, reason=_nonblank(reason), transaction_ids=_to_label(item, before))


def _to_label(item: Item, before: State) -> tuple[str, ...]:
    """Return the transactions of an item and of earlier verdicts, since all of them get new labels."""
    return tuple(dict.fromkeys([*item.transaction_ids, *sorted(before.decided)]))


def set_aside(
    item: Item,
    before: State,
    analyst: str,
    kind: SetAside,
    event_id: str,
    reason: str | None = None,
    note: str | None = None,
    until: datetime | None = None,
    assignee: str | None = None,
) -> Event:
    """Return the event by which an analyst sets an item aside without a verdict, which releases it.

    A note changes nothing else, and is allowed even if another analyst holds the item or it is decided.

    Args:
        item: the item.
        before: its state.
        analyst: who does it.
        kind: ``noted``; or the item is offered to nobody for a time (``waiting``), to one person (``assigned``), or to
            leads (``escalated``) only.
        event_id: the event's id.
        reason: why; required except for a note.
        note: further text.
        until: the time at which the waiting ends.
        assignee: the person who should decide.

    Raises:
        FraudlakeError: another analyst holds it, or it is decided.
        UsageError: a required argument is missing, or ``until`` is in the past or more than a year away.
    """
    event = _event(item, before, kind, analyst, event_id)
    event = replace(event, reason=_nonblank(reason), note=_nonblank(note))
    if kind == "noted":
        if not (event.reason or event.note):
            raise UsageError(f"there is no note on {item.item_id} to save: write one")
        return event
    _require_free(item, before, analyst)
    if before.covers(item):
        raise TakenError(_decided(item, before))
    if not event.reason:
        raise UsageError(f"give a reason why {item.item_id} is set aside: nothing was written")
    if kind == "waiting" and not (until and timedelta() < until - before.time <= _LONGEST_WAIT):
        raise UsageError(f"give a day of the next twelve months until which {item.item_id} waits: nothing was written")
    assignee = (assignee or "").strip()
    if kind == "assigned" and not assignee:
        raise UsageError(f"name the person who decides on {item.item_id}: nothing was written")
    return replace(
        event, expires_at=until if kind == "waiting" else None, assignee=assignee if kind == "assigned" else None
    )


def relate(
    item: Item,
    before: State,
    analyst: str,
    kind: Literal["opened", "merged", "separated"],
    event_id: str,
    reason: str | None,
    into: Item | None = None,
    of_into: State | None = None,
) -> Event:
    """Return the event that opens a case by hand, merges it into another one, or separates it again.

    Args:
        item: the case.
        before: its state.
        analyst: who does it.
        kind: which of the three.
        event_id: the event's id.
        reason: why; it must be given.
        into: the other case.
        of_into: the other case's state.

    Raises:
        FraudlakeError: another analyst holds one of the cases.
        UsageError: no reason is given.
    """
    if not _nonblank(reason):
        raise UsageError(f"give a reason why the case is {kind}: nothing was written")
    if kind != "separated":
        _require_free(item, before, analyst)
    if into is not None and of_into is not None:
        _require_free(into, of_into, analyst)
    event = _event(item, before, kind, analyst, event_id)
    return replace(event, reason=reason, merged_into=into.item_id if into else None)


def attach(
    item: Item,
    before: State,
    analyst: str,
    event_id: str,
    file_name: str,
    file_size: int,
    file_hash: str,
    note: str | None = None,
) -> Event:
    """Return the event by which an analyst attaches a file; like a note, it is always allowed."""
    event = _event(item, before, "attached", analyst, event_id)
    return replace(event, file_name=file_name, file_size=file_size, file_hash=file_hash, note=_nonblank(note))


def _nonblank(text: str | None) -> str | None:
    """Return a text; None if it has only blanks."""
    return text if text and text.strip() else None


def _event(item: Item, before: State, kind: Kind, analyst: str, event_id: str) -> Event:
    return Event(
        event_id,
        item.item_id,
        kind,
        analyst,
        max(before.time, before.last.at + _LEAST) if before.last else before.time,
        item.account_id,
        item.entity,
        item.entity_key,
        transaction_ids=item.transaction_ids,
        case_id=item.case_id,
        day=item.day,
    )


def _require_free(item: Item, before: State, analyst: str) -> None:
    if before.merged is not None and before.merged.number > item.as_of:
        raise TakenError(f"{before.merged.analyst} has merged {item.item_id} into {before.merged.merged_into}")
    if before.holder not in (None, analyst):
        raise TakenError(
            f"{before.holder} holds {item.item_id} until {before.expires_at:%Y-%m-%d %H:%M:%S} UTC: if a clock was "
            f"ahead, free it with 'fraudlake review release {item.item_id} --force'"
        )


def _decided(item: Item, before: State) -> str:
    last = before.decision
    assert last is not None
    return (
        f"{last.analyst} decided on {item.item_id} at {last.at:%Y-%m-%d %H:%M:%S} UTC: {last.verdict}; a correction "
        "replaces a verdict"
    )
