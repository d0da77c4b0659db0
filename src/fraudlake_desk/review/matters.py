"""Matters: opens cases by hand for payments without an alert, and merges and separates cases."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fraudlake.entity import ACCOUNT
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review import event_log, item_state, items, opened
from fraudlake.review.item import Item
from fraudlake.review.payments import by_id
from fraudlake.review.window import Window
from fraudlake.text.counts import counted
from fraudlake_desk.review import actions

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.item_state import State
    from fraudlake.review.items import Named


def open_case(
    store: Store,
    account: str,
    payments: Collection[str],
    analyst: str,
    reason: str | None,
    event_id: str,
    now: datetime | None = None,
) -> Event:
    """Open a case of payments of an account, and return the event.

    The case joins the latest queue, or that of the current day if there is none.

    Args:
        store: the lake's tables.
        account: the account.
        payments: ids of its payments.
        analyst: who opens it.
        reason: why; it must be given.
        event_id: the event's id, from which the case's id is derived.
        now: the time; by default this machine's.

    Raises:
        UsageError: no payment or reason is given, or a payment is not of the account.
        FraudlakeError: another case that was opened by hand and is still open has one of the payments.
    """
    ids = [*dict.fromkeys(payments)]
    time = now or datetime.now(UTC)
    if not ids:
        raise UsageError(f"name the payments of {account} that the case is about: nothing was written")
    paid = by_id(store, ids)
    for id_ in ids:
        if id_ not in paid or paid[id_]["account_id"] != account:
            raise UsageError(f"account {account} has no payment {id_}: nothing was written")
    dates = [payment["timestamp"].date() for payment in paid.values()]
    name = opened.id_of(event_id)
    about = Window(min(dates), max(dates))
    day = next((day for day, is_queue in items.days(store).items() if is_queue), time.date())
    item = Item(name, name, ACCOUNT, account, account, tuple(ids), frozenset([name]), day, about)

    def make(before: State) -> Event:
        _require_new(store, item, time)
        return actions.relate(item, before, analyst, "opened", event_id, reason)

    return event_log.record(store, item, event_id, make, now)


def merge(
    store: Store, name: str, into: str, analyst: str, reason: str | None, event_id: str, now: datetime | None = None
) -> Event:
    """Make a case a part of another one, and return the event.

    Args:
        store: the lake's tables.
        name: the id of the case.
        into: the id of the other one.
        analyst: who merges them.
        reason: why; it must be given.
        event_id: the event's id.
        now: the time; by default this machine's.

    Raises:
        UsageError: an id is not that of a case, the two are one case already, or no reason is given.
        FraudlakeError: the case is decided, or a part of another one already, or another analyst holds one of them.
    """

    def make(before: State) -> Event:
        # Each attempt reads both again: `event_log.record` calls this again if another event is written first.
        one = _case(store, name)
        other = _case(store, into)
        if one.item.item_id == other.item.item_id:
            raise UsageError(f"{name} and {into} are one case already")
        if one.part is not None:
            raise FraudlakeError(f"{name} is part of {one.item.item_id} already: separate it first")
        if before.decision is not None:
            raise FraudlakeError(
                f"{before.decision.analyst} decided {before.decision.verdict} on {name}: withdraw the verdict first, "
                f"or merge {into} into it"
            )
        of_other = item_state.state(event_log.read_events_of_items(store, other.item.names), before.time)
        return actions.relate(one.item, before, analyst, "merged", event_id, reason, other.item, of_other)

    return event_log.record(store, _own(_case(store, name)), event_id, make, now)


def separate(
    store: Store, name: str, analyst: str, reason: str | None, event_id: str, now: datetime | None = None
) -> Event:
    """Separate a part from the case that it was merged into, and return the event.

    Args:
        store: the lake's tables.
        name: the id of the part.
        analyst: who separates them.
        reason: why; it must be given.
        event_id: the event's id.
        now: the time; by default this machine's.

    Raises:
        UsageError: the id is not that of a part, or no reason is given.
        FraudlakeError: a verdict on the whole covers payments of the part, or another analyst holds the whole.
    """

    def make(before: State) -> Event:
        named = _case(store, name)
        if named.part is None:
            raise UsageError(f"{name} is not part of another case")
        whole = item_state.state(event_log.read_events_of_items(store, named.item.names), before.time)
        if both := whole.decided.intersection(named.part.transaction_ids):
            raise FraudlakeError(
                f"the verdict on {named.item.item_id} is about {counted(len(both), 'payment')} of {name}: withdraw it "
                "first"
            )
        return actions.relate(named.part, before, analyst, "separated", event_id, reason, named.item, whole)

    return event_log.record(store, _own(_case(store, name)), event_id, make, now)


def _own(named: Named) -> Item:
    return named.part or named.item


def _case(store: Store, name: str) -> Named:
    named = items.find(store, name)
    if named is None:
        raise UsageError(f"{store.name} has no case '{name}': 'fraudlake queue list' and 'fraudlake cases' show cases")
    if named.case is None:
        raise UsageError(f"{name} was drawn at random and stands for other accounts, so it is decided on alone")
    return named


def _require_new(store: Store, item: Item, now: datetime) -> None:
    """Refuse payments that belong to a case that was opened by hand and is still open."""
    for case in opened.rows(store, lambda event: event.account_id == item.account_id):
        both = set(item.transaction_ids).intersection(case["transaction_ids"])
        named = items.find(store, case["case_id"]) if both else None
        if named is None:
            continue
        state = item_state.state(event_log.read_events_of_items(store, named.item.names), now)
        if not state.covers(named.item):
            raise FraudlakeError(
                f"case {named.item.item_id}, which is open, has {min(both)} already, {case['reasons']}: go on there"
            )
