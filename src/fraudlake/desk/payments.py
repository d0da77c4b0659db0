"""Payments: looks up rows of ``silver_transactions`` by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fraudlake.sql_text import one_of
from fraudlake.tables import SILVER_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fraudlake.desk.store import Store
    from fraudlake.desk.window import Window


def by_id(store: Store, ids: Iterable[str], window: Window | None = None) -> dict[str, dict[str, Any]]:
    """Return payments, ``transaction_id, account_id, timestamp, amount``, by id; unknown ids are left out.

    Args:
        store: the lake's tables.
        ids: the ids.
        window: their days, by which Delta skips files, as it cannot by the id; None: unknown.
    """
    wanted = sorted({*ids})
    if not wanted:
        return {}
    silver, of_days = SILVER_TRANSACTIONS, f" AND {window.sql}" if window else ""
    found = store.query(
        f"SELECT transaction_id, account_id, timestamp, amount FROM {silver.name} "
        f"WHERE {one_of('transaction_id', wanted)}{of_days}",
        silver,
    )
    return {row["transaction_id"]: row for row in found.to_pylist()}
