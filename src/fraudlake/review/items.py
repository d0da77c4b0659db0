"""Items: resolves ids and rows of a queue to the items that they mean now, after merges and later alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from fraudlake.errors import UsageError
from fraudlake.review import cases, event_log, item_state, merges, opened
from fraudlake.review.item import Item
from fraudlake.review.item_state import State
from fraudlake.review.window import Window
from fraudlake.tables import GOLD_REVIEW_QUEUE
from fraudlake.text.sql_text import one_of, value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store


@dataclass(frozen=True)
class Queued:
    """A row of ``gold_review_queue``, or a case that was opened by hand, with its current item and state."""

    row: dict[str, Any]
    item: Item
    """If the case was merged into another one, the whole."""
    state: State
    rules: tuple[str, ...] = ()
    """The rules of its case."""
    is_part: bool = False
    """Whether its case is a part of the item."""
    is_repeated: bool = False
    """Whether it is a part, and another row of the queue has the same item, which is offered instead."""

    due_at: datetime | None = None
    """When it should be decided: the setting ``review_limit`` after its queue was built."""

    def order_for(self, person: str) -> tuple[bool, bool]:
        """Return a sort key that puts items that a person holds first, then those assigned to them."""
        return self.state.holder != person, self.state.assignee != person

    @property
    def is_late(self) -> bool:
        """Whether it is still open after :attr:`due_at`."""
        is_over = self.due_at is not None and self.state.time >= self.due_at
        return is_over and not self.is_decided and not self.is_repeated

    @property
    def is_decided(self) -> bool:
        """Whether verdicts cover all of it."""
        return self.state.covers(self.item)


def days(store: Store) -> dict[date, bool]:
    """Return whether each day has a queue (true) or only cases opened by hand (false), the latest day first."""
    queues = store.query(f"SELECT DISTINCT day FROM {GOLD_REVIEW_QUEUE.name}", GOLD_REVIEW_QUEUE)["day"].to_pylist()
    by_hand = {event.day for event in event_log.read_events_of_cases(store) if event.kind == cases.OPENED and event.day}
    return {day: day in queues for day in sorted(by_hand.union(queues), reverse=True)}


def latest(days: Mapping[date, bool]) -> date | None:
    """Return the latest day with a queue, or else with cases opened by hand; None if there is no day."""
    return next((day for day, is_queue in days.items() if is_queue), next(iter(days), None))


def queue_rows(store: Store, day: date) -> list[dict[str, Any]]:
    """Return the rows of ``gold_review_queue`` of a day, by rank."""
    statement = f"SELECT * FROM {GOLD_REVIEW_QUEUE.name} WHERE day = {value(day)} ORDER BY rank"
    rows: list[dict[str, Any]] = store.query(statement, GOLD_REVIEW_QUEUE).to_pylist()
    return rows


def listed(store: Store, day: date, now: datetime | None = None) -> list[Queued]:
    """Return the queue of a day by rank, then its cases opened by hand, with their states at ``now``."""
    rows = queue_rows(store, day)
    by_hand = opened.read_day(store, day)
    rows += [opened.queued(case, rank) for rank, case in enumerate(by_hand, len(rows) + 1)]
    by_name = cases.named(store, [row["item_id"] for row in rows if row["kind"] == cases.CASE])
    by_name |= {case["case_id"]: case for case in by_hand}
    return resolved(store, rows, by_name, now or datetime.now(UTC))


def resolved(
    store: Store, rows: Sequence[dict[str, Any]], by_name: Mapping[str, dict[str, Any]], now: datetime
) -> list[Queued]:
    """Return rows of the queues of some days with their items and states.

    Args:
        store: the lake's tables.
        rows: rows of ``gold_review_queue``, and cases opened by hand as such rows.
        by_name: the cases of the rows, by ``item_id``.
        now: the time.
    """
    merged = merges.read_merges(store)
    cases_of = [by_name.get(row["item_id"]) for row in rows]
    items = [_item(row, case, merged) for row, case in zip(rows, cases_of, strict=True)]
    names = {name: item.item_id for item in items for name in item.names}
    states = item_state.states(event_log.read_events_of_items(store, names), now, names) if names else {}
    free = item_state.state([], now)
    # Several rows of a day may have parts of one case: its own row is offered, or else the first of a part.
    have_row = {(row["day"], case["case_id"]) for row, case in zip(rows, cases_of, strict=True) if case}
    queued = []
    for row, case, item in zip(rows, cases_of, items, strict=True):
        is_part = case is not None and case["case_id"] != item.item_id
        rules = tuple(case["rules"]) if case else ()
        state = states.get(item.item_id, free)
        place = (row["day"], item.item_id)
        due_at = row["built_at"] + store.settings.review_limit if row["built_at"] else None
        queued.append(Queued(row, item, state, rules, is_part, is_part and place in have_row, due_at))
        have_row.add(place)
    return queued


def next_of(store: Store, day: date, analyst: str, now: datetime | None = None) -> Queued | None:
    """Return the first item of a day's queue that the analyst holds; else one that is assigned or offered to them."""
    queued = [one for one in listed(store, day, now) if not one.is_repeated]
    for one in sorted(queued, key=lambda one: one.order_for(analyst)):
        if one.state.holder == analyst or (one.state.is_offered(analyst, is_lead=True) and not one.is_decided):
            return one
    return None


def _item(row: dict[str, Any], case: dict[str, Any] | None, merged: merges.Merges) -> Item:
    """Return the item of a row of the queue; for a drawn account without its payments, which :func:`whole` looks up."""
    if case is not None:
        return merged.item(merged.rows.get(merged.whole(case["case_id"]), case), row["day"])
    names = frozenset([row["item_id"]])
    day = row["day"]
    about = Window(day, day)
    return Item(row["item_id"], None, row["entity"], row["entity_key"], row["account_id"], (), names, day, about)


def whole(store: Store, queued: Sequence[Queued]) -> list[Item]:
    """Return the items of a day's queue with their payments, also those of drawn accounts."""
    drawn = [one.row for one in queued if one.item.case_id is None]
    paid = cases.paid_on(store, drawn[0]["day"], [row["account_id"] for row in drawn]) if drawn else {}
    return [
        one.item if one.item.case_id else replace(one.item, transaction_ids=paid.get(one.item.account_id, ()))
        for one in queued
    ]


@dataclass(frozen=True)
class Named:
    """The item of an id, with its case and its row of the queue, if it has these."""

    item: Item
    case: dict[str, Any] | None
    row: dict[str, Any] | None
    part: Item | None = None
    """The case of the id, if it is a part of the item."""
    merged: merges.Merges = merges.NONE
    """The merges of the lake; not looked up for a drawn account."""


def require(store: Store, name: str) -> Item:
    """Return the item of an id: see :func:`require_named`."""
    return require_named(store, name).item


def require_named(store: Store, name: str) -> Named:
    """Return the item of an id, with its case and row of the queue.

    Raises:
        UsageError: there is no such item, or it is a part of another one.
    """
    named = find(store, name)
    if named is None:
        raise UsageError(
            f"{store.name} has no case, alert or drawn account '{name}': 'fraudlake queue list' and 'fraudlake cases' "
            "show what there is"
        )
    if named.part is not None:
        raise UsageError(f"{name} is part of case {named.item.item_id} now: name that one")
    return named


def find(store: Store, name: str, day: date | None = None) -> Named | None:
    """Return the item whose case, alert or drawn account has an id; None if there is none.

    Args:
        store: the lake's tables.
        name: the id.
        day: the day of the queue whose row to return; None: the latest queue with the item.
    """
    own = opened.named(store, [name]).get(name)
    merged = merges.read_merges(store) if own else merges.NONE
    whole = merged.rows.get(merged.whole(own["case_id"]), own) if own else None
    case = merged.row(store, whole) if whole else None
    is_named = one_of("item_id", [case["case_id"], *case["alert_ids"]] if case else [name])
    queued = f"SELECT * FROM {GOLD_REVIEW_QUEUE.name} WHERE {is_named} ORDER BY day DESC"
    rows = store.query(queued, GOLD_REVIEW_QUEUE).to_pylist()
    if whole and "day" in whole:
        rows.append(opened.queued(whole))
    if whole:
        rows.sort(key=lambda row: row["item_id"] not in merged.item(whole).names)  # the whole's own rows first
    row = next((row for row in rows if day in (None, row["day"])), None)
    if whole is not None and own is not None:
        part = merged.item(own) if own["case_id"] != whole["case_id"] else None
        return Named(merged.item(whole, row["day"] if row else None), case, row, part, merged)
    if row is None or row["kind"] == cases.CASE:
        return None
    return Named(cases.drawn(store, row), None, row)
