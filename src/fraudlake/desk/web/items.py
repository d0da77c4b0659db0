"""Items: ids, and the rows of a queue, become what is decided on, as cases and events are now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.desk import review
from fraudlake.desk.review import Item, State
from fraudlake.desk.web.errors import MissingError
from fraudlake.lake.sql_text import literal, value

if TYPE_CHECKING:
    from fraudlake.desk.store import Store


@dataclass(frozen=True)
class Queued:
    """A row of ``gold_review_queue``, with what it is about now, and its state."""

    row: dict[str, Any]
    item: Item
    state: State

    @property
    def is_decided(self) -> bool:
        """Whether there is a verdict on all of it."""
        return self.state.covers(self.item)


def days(store: Store) -> list[date]:
    """Return the days that have a queue, the latest first."""
    queue = tables.GOLD_REVIEW_QUEUE
    rows = store.query(f"SELECT DISTINCT day FROM {queue.name} ORDER BY day DESC", queue)
    return list(rows["day"].to_pylist())


def listed(store: Store, day: date) -> list[Queued]:
    """Return the queue of a day, in its order."""
    queue = tables.GOLD_REVIEW_QUEUE
    rows = store.query(f"SELECT * FROM {queue.name} WHERE day = DATE '{day}' ORDER BY rank", queue).to_pylist()
    by_name = _cases(store, [row["item_id"] for row in rows if row["kind"] == "case"])
    items = [_item(row, by_name.get(row["item_id"])) for row in rows]
    names = {name: item.item_id for item in items for name in item.names}
    now = datetime.now(UTC)
    states = review.states(review.of_items(store, names), now, names) if names else {}
    free = review.state([], now)
    return [Queued(row, item, states.get(item.item_id, free)) for row, item in zip(rows, items, strict=True)]


def _cases(store: Store, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the cases that ids name, by these ids; a case may have joined another one since it was listed."""
    cases = tables.GOLD_CASES
    select, listed = f"SELECT * FROM {cases.name} WHERE", ", ".join(map(value, names))
    found = store.query(f"{select} case_id IN ({listed})", cases).to_pylist() if names else []
    by_name = {case["case_id"]: case for case in found}
    others = [name for name in names if name not in by_name]
    joined = " OR ".join(f"array_contains(alert_ids, {literal(name)})" for name in others)
    for case in store.query(f"{select} {joined}", cases).to_pylist() if others else []:
        by_name |= dict.fromkeys(set(case["alert_ids"]).intersection(others), case)
    return by_name


@dataclass(frozen=True)
class Found:
    """What an id names: the item, its case, and its row of the queue, if it has these."""

    item: Item
    case: dict[str, Any] | None
    row: dict[str, Any] | None


def find(store: Store, name: str, day: date | None = None) -> Found:
    """Return the item of an id: of a case, one of its alerts, or a drawn account.

    Raises:
        MissingError: there is none.
    """
    queue, cases, silver = tables.GOLD_REVIEW_QUEUE, tables.GOLD_CASES, tables.SILVER_TRANSACTIONS
    having = f"SELECT * FROM {cases.name} WHERE array_contains(alert_ids, {literal(name)})"
    case = next(iter(store.query(having, cases).to_pylist()), None)
    names = ", ".join(map(value, case["alert_ids"] if case else [name]))
    rows = store.query(f"SELECT * FROM {queue.name} WHERE item_id IN ({names}) ORDER BY day DESC", queue).to_pylist()
    row = next((row for row in rows if day in (None, row["day"])), None)
    if case is not None:
        return Found(_item(row or case, case), case, row)
    if row is None:
        raise MissingError(f"there is no case, alert or drawn account {name} any more: it was forgotten or replaced")
    where = f"account_id = {literal(row['account_id'])} AND date = DATE '{row['day']}'"
    ids = store.query(f"SELECT transaction_id FROM {silver.name} WHERE {where}", silver)["transaction_id"].to_pylist()
    return Found(_item(row, None, tuple(ids)), None, row)


def _item(row: dict[str, Any], case: dict[str, Any] | None, transactions: tuple[str, ...] = ()) -> Item:
    named, id_ = case or row, case["case_id"] if case else row["item_id"]
    return Item(
        item_id=id_,
        case_id=case["case_id"] if case else None,
        entity=named["entity"],
        entity_key=named["entity_key"],
        account_id=named["account_id"],
        transaction_ids=tuple(case["transaction_ids"]) if case else transactions,
        names=frozenset(case["alert_ids"]) if case else frozenset([id_]),
        day=row.get("day"),
    )
