"""Marks: looks up the payments that an analyst marks as fraud, and their amounts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fraudlake.errors import UsageError
from fraudlake.review import payments
from fraudlake.review.window import Window

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.item import Item

BEFORE = 90
AFTER = 7
"""The days before and after an item's own days whose payments can be marked."""


def rows(store: Store, item: Item, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return those of some payments that can be marked, by id: ``transaction_id, account_id, timestamp, amount``."""
    return payments.by_id(store, ids, days(item))


def amounts(store: Store, item: Item, ids: Iterable[str]) -> dict[str, float]:
    """Return the amounts of payments, as sums add them, by id and in the order given.

    Raises:
        UsageError: a payment does not exist on the days around the item's own.
    """
    wanted = list(dict.fromkeys(ids))
    if not wanted:
        return {}
    by_id = rows(store, item, wanted)
    if unknown := [id_ for id_ in wanted if id_ not in by_id]:
        within = days(item)
        raise UsageError(f"there is no payment {unknown[0]} from {within.first} to {within.last}: nothing was written")
    return {id_: by_id[id_]["summed_amount"] for id_ in wanted}


def read_amounts(store: Store, items: Iterable[Item]) -> dict[str, float]:
    """Return the amounts, as sums add them, of the payments that raised cases, by id; drawn accounts are skipped."""
    raised = [item for item in items if item.case_id is not None]
    ids = [id_ for item in raised for id_ in item.transaction_ids]
    if not ids:
        return {}
    about = [item.about for item in raised if item.about is not None]
    of_all = Window(min(one.first for one in about), max(one.last for one in about))
    return {id_: row["summed_amount"] for id_, row in payments.by_id(store, ids, of_all).items()}


def days(item: Item) -> Window:
    """Return the days whose payments can be marked for an item."""
    assert item.about is not None  # it is a case, or was drawn
    return Window(item.about.first - timedelta(days=BEFORE), item.about.last + timedelta(days=AFTER))
