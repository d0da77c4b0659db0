"""Marks: ids of payments, which an analyst calls fraud, become rows with their amounts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fraudlake.desk import payments
from fraudlake.desk.window import Window
from fraudlake.errors import UsageError

if TYPE_CHECKING:
    from fraudlake.desk.review import Item
    from fraudlake.desk.store import Store

BEFORE, AFTER = 90, 7
"""Days before and after what an item is about, of which payments can be marked."""


def rows(store: Store, item: Item, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return payments that can be marked: ``transaction_id, account_id, timestamp, amount`` by their ids."""
    return payments.by_id(store, ids, days(item))


def amounts(store: Store, item: Item, ids: Iterable[str]) -> dict[str, float]:
    """Return the amounts of payments, in account currency, by their ids, in the order of these.

    Raises:
        UsageError: there is no such payment in the days around what the item is about.
    """
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    known = rows(store, item, wanted)
    if unknown := [id_ for id_ in wanted if id_ not in known]:
        within = days(item)
        raise UsageError(f"there is no payment {unknown[0]} from {within.first} to {within.last}: nothing was written")
    return {id_: known[id_]["amount"] for id_ in wanted}


def of_cases(store: Store, items: Iterable[Item]) -> dict[str, float]:
    """Return the amounts, in account currency, of the payments that raised cases, by their ids; others have none."""
    raised = [item for item in items if item.case_id is not None]
    ids = [id_ for item in raised for id_ in item.transaction_ids]
    if not ids:
        return {}
    about = [item.about for item in raised if item.about is not None]
    of_all = Window(min(one.first for one in about), max(one.last for one in about))
    return {id_: row["amount"] for id_, row in payments.by_id(store, ids, of_all).items()}


def days(item: Item) -> Window:
    """Return the days of which payments of an item can be marked."""
    assert item.about is not None  # it is a case, or was drawn
    return Window(item.about.first - timedelta(days=BEFORE), item.about.last + timedelta(days=AFTER))
