"""Items: ids, and the rows of a queue, become what is decided on, as cases and events are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from fraudlake.desk import cases, queue, review
from fraudlake.desk.review import Item, State
from fraudlake.desk.window import Window
from fraudlake.errors import UsageError
from fraudlake.sql_text import one_of, value
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE

if TYPE_CHECKING:
    from fraudlake.desk.store import Store


@dataclass(frozen=True)
class Queued:
    """A row of ``gold_review_queue``, with what it is about now, and its state."""

    row: dict[str, Any]
    item: Item
    state: State
    rules: tuple[str, ...] = ()
    """The rules of its case."""

    @property
    def is_decided(self) -> bool:
        """Whether there is a verdict on all of it."""
        return self.state.covers(self.item)


def days(store: Store) -> list[date]:
    """Return the days that have a queue, the latest first."""
    rows = store.query(f"SELECT DISTINCT day FROM {GOLD_REVIEW_QUEUE.name} ORDER BY day DESC", GOLD_REVIEW_QUEUE)
    return list(rows["day"].to_pylist())


def listed(store: Store, day: date, now: datetime | None = None) -> list[Queued]:
    """Return the queue of a day, in its order, at a time: by default now."""
    now, rows = now or datetime.now(UTC), queue.of_day(store, day)
    by_name = _cases(store, [row["item_id"] for row in rows if row["kind"] == cases.CASE])
    cases_of = [by_name.get(row["item_id"]) for row in rows]
    items = [_item(row, case) for row, case in zip(rows, cases_of, strict=True)]
    names = {name: item.item_id for item in items for name in item.names}
    states = review.states(review.of_items(store, names), now, names) if names else {}
    free = review.state([], now)
    return [
        Queued(row, item, states.get(item.item_id, free), tuple(case["rules"]) if case else ())
        for row, case, item in zip(rows, cases_of, items, strict=True)
    ]


def next_of(store: Store, day: date, analyst: str, now: datetime | None = None) -> Queued | None:
    """Return the first item of a day's queue that the analyst holds, or else that is offered to them."""
    queued = listed(store, day, now)
    own = (one for one in queued if one.state.holder == analyst)
    free = (one for one in queued if one.state.is_offered(analyst, is_lead=True) and not one.is_decided)
    return next(chain(own, free), None)


def _cases(store: Store, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the cases that ids name, by these ids; a case may have joined another one since it was listed."""
    select = f"SELECT * FROM {GOLD_CASES.name} WHERE"
    present = store.query(f"{select} {one_of('case_id', names)}", GOLD_CASES).to_pylist() if names else []
    by_name = {case["case_id"]: case for case in present}
    others = [name for name in names if name not in by_name]
    joined = " OR ".join(f"array_contains(alert_ids, {value(name)})" for name in others)
    for case in store.query(f"{select} {joined}", GOLD_CASES).to_pylist() if others else []:
        by_name |= dict.fromkeys(set(case["alert_ids"]).intersection(others), case)
    return by_name


def _item(row: dict[str, Any], case: dict[str, Any] | None) -> Item:
    """Return the item of a row of the queue; what a verdict on a drawn account is about is looked up when needed."""
    if case is not None:
        return cases.item(case, row["day"])
    names, day = frozenset([row["item_id"]]), row["day"]
    about = Window(day, day)
    return Item(row["item_id"], None, row["entity"], row["entity_key"], row["account_id"], (), names, day, about)


def whole(store: Store, queued: Sequence[Queued]) -> list[Item]:
    """Return the items of a day's queue with all that verdicts on them are about."""
    drawn = [one.row for one in queued if one.item.case_id is None]
    paid = cases.paid_on(store, drawn[0]["day"], [row["account_id"] for row in drawn]) if drawn else {}
    return [
        one.item if one.item.case_id else replace(one.item, transaction_ids=paid.get(one.item.account_id, ()))
        for one in queued
    ]


@dataclass(frozen=True)
class Named:
    """What an id names: the item, its case, and its row of the queue, if it has these."""

    item: Item
    case: dict[str, Any] | None
    row: dict[str, Any] | None


def require(store: Store, name: str) -> Item:
    """Return the item of an id.

    Raises:
        UsageError: there is none.
    """
    named = find(store, name)
    if named is None:
        raise UsageError(
            f"{store.name} has no case, alert or drawn account '{name}': 'fraudlake queue list' and 'fraudlake cases' "
            "show what there is"
        )
    return named.item


def find(store: Store, name: str, day: date | None = None) -> Named | None:
    """Return the item of an id: of a case, one of its alerts, or a drawn account; None if there is none.

    Args:
        store: the lake's tables.
        name: the id.
        day: the day of the queue that it is from; None: the latest one that has it.
    """
    having = f"SELECT * FROM {GOLD_CASES.name} WHERE array_contains(alert_ids, {value(name)})"
    case = next(iter(store.query(having, GOLD_CASES).to_pylist()), None)
    is_named = one_of("item_id", case["alert_ids"] if case else [name])
    queued = f"SELECT * FROM {GOLD_REVIEW_QUEUE.name} WHERE {is_named} ORDER BY day DESC"
    rows = store.query(queued, GOLD_REVIEW_QUEUE).to_pylist()
    row = next((row for row in rows if day in (None, row["day"])), None)
    if case is not None:
        return Named(cases.item(case, row["day"] if row else None), case, row)
    if row is None or row["kind"] == cases.CASE:
        return None
    return Named(cases.drawn(store, row), None, row)
