"""Payments: looks up rows of ``silver_transactions`` by id, and the days that have some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fraudlake.errors import UsageError
from fraudlake.review.window import Window
from fraudlake.tables import SILVER_TRANSACTIONS
from fraudlake.text.sql_text import one_of
from fraudlake.values import summed_amount

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from fraudlake.lake.store import Store


def days(store: Store, where: str = "") -> Window | None:
    """Return the first and the last day with transactions; None if there is none."""
    columns = "min(date) AS first, max(date) AS last"
    silver = SILVER_TRANSACTIONS
    (row,) = store.query(f"SELECT {columns} FROM {silver.name} {where}", silver).to_pylist()
    return Window(row["first"], row["last"]) if row["first"] else None


def days_between(store: Store, first: date | None, last: date | None) -> Window | None:
    """Return the days of a given range that are between the lake's first and last; None without transactions.

    Args:
        store: the lake's tables.
        first: the first day; None: the lake's.
        last: the last day; None: the lake's.

    Raises:
        UsageError: the first day is after the last one, or the lake has no transactions on these days.
    """
    if first and last and first > last:
        raise UsageError(f"--from {first} is after --to {last}: swap them")
    span = days(store)
    if span is None:
        return None
    wanted = " ".join(f"--{name} {day}" for name, day in (("from", first), ("to", last)) if day)
    require_days(store, span, first, last, wanted)
    return Window(max(first or span.first, span.first), min(last or span.last, span.last))


def require_days(store: Store, span: Window, first: date | None, last: date | None, wanted: str) -> None:
    """Refuse days that are all before the lake's first day with transactions, or all after its last.

    Args:
        store: the lake's tables.
        span: the lake's days, as :func:`days` gives them.
        first: the first wanted day; None: the lake's.
        last: the last wanted day; None: the lake's.
        wanted: the days as the command gave them.

    Raises:
        UsageError: the lake has no transactions on these days.
    """
    if (first and first > span.last) or (last and last < span.first):
        raise UsageError(
            f"{wanted}: the transactions of {store.name} are of {span.first} to {span.last}: give days within these"
        )


def by_id(store: Store, ids: Iterable[str], window: Window | None = None) -> dict[str, dict[str, Any]]:
    """Return payments by id; unknown ids are left out.

    They have ``transaction_id, account_id, timestamp, amount`` and ``summed_amount``, that of
    :func:`~fraudlake.values.summed_amount`.

    Args:
        store: the lake's tables.
        ids: the ids.
        window: their days, by which Delta skips files, as it cannot by the id; None: unknown.
    """
    wanted = sorted({*ids})
    if not wanted:
        return {}
    silver = SILVER_TRANSACTIONS
    of_days = f" AND {window.sql}" if window else ""
    rows = store.query(
        "SELECT transaction_id, account_id, timestamp, amount, "
        f"{summed_amount(store.settings.silver_columns)} AS summed_amount FROM {silver.name} "
        f"WHERE {one_of('transaction_id', wanted)}{of_days}",
        silver,
    )
    return {row["transaction_id"]: row for row in rows.to_pylist()}
