"""Several: applies an action to many items in one commit; each item gets an event, or the reason for its refusal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review.event import Event
from fraudlake.review.event_log import Wanted
from fraudlake.review.item import Item
from fraudlake.review.item_state import State
from fraudlake_desk.review import actions, marks, verdicts

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

MOST = 100
"""Most items of one commit."""
Make = Callable[[Item, State, str], Event]
"""Makes the event of an item, from its state and the event's id, or raises an error if it is not allowed."""
Outcomes = dict[str, Event | FraudlakeError]
"""For each item, by the name that was given for it, its event or the error."""


def carry_out(store: Store, items: Mapping[str, Item], form_id: str, said: Iterable[object], make: Make) -> Outcomes:
    """Write an event for each item whose state allows it; a repeated call writes nothing twice.

    Args:
        store: the lake's tables.
        items: items by the names that were given for them; two names may mean the same item.
        form_id: id of the form or command; a repetition has the same id.
        said: the content of the form: the same form with other content is not a repetition.
        make: makes the event of an item.

    Raises:
        UsageError: there are too many items.
    """
    require_few(items)
    said = [*said]
    wanted: dict[str, Wanted] = {}
    for name, item in items.items():
        id_ = event_id(form_id, said, name)
        wanted.setdefault(item.item_id, Wanted(item, id_, _bind(make, item, id_)))
    written = verdicts.record(store, [*wanted.values()])
    outcomes = dict(zip(wanted, written, strict=True))
    return {name: outcomes[item.item_id] for name, item in items.items()}


def _bind(make: Make, item: Item, id_: str) -> Callable[[State], Event]:
    return lambda before: make(item, before, id_)


def require_few(names: Iterable[str]) -> None:
    """Refuse more items than :data:`MOST`.

    Raises:
        UsageError: there are more.
    """
    count = len([*names])
    if count > MOST:
        raise UsageError(f"{count} items are chosen, and at most {MOST} are allowed at once: nothing was written")


def event_id(form_id: str, said: Iterable[object], name: str) -> str:
    """Return the id of an item's event."""
    text = json.dumps([form_id, *said, name], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def all_fraud(store: Store, items: Iterable[Item], analyst: str, reason: str | None, note: str | None) -> Make:
    """Return a function that decides that all payments of a case are fraud; it refuses drawn accounts."""
    amounts = marks.read_amounts(store, items)

    def make(item: Item, before: State, id_: str) -> Event:
        if item.case_id is None:
            raise UsageError(f"{item.item_id} was drawn at random: mark the payments that are fraud on its own page")
        if missing := [one for one in item.transaction_ids if one not in amounts]:
            raise UsageError(f"there is no payment {missing[0]} of {item.item_id} any more: nothing was written")
        fraud = {one: amounts[one] for one in item.transaction_ids}
        return actions.decide(item, before, analyst, "fraud", id_, fraud, reason, note)

    return make
