"""Money: finds the currency and country of payments in declared columns whose names end with these nouns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fraudlake.review.window import Window
from fraudlake.tables import SILVER_TRANSACTIONS
from fraudlake.text import sql_text
from fraudlake.text.sql_text import one_of
from fraudlake_desk.documents.letters import shown

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.items import Queued
    from fraudlake.settings import Settings


def declared(settings: Settings, noun: str) -> tuple[str, ...]:
    """Return the declared columns whose names are or end with a noun, such as ``currency`` or ``card_currency``.

    In a lake with the setting ``currency`` its column alone has the currency.
    """
    if noun == "currency" and settings.currency is not None:
        return (settings.currency.column,)
    return _columns_named(tuple(settings.columns), noun)


@lru_cache  # a page calls this for each payment
def _columns_named(columns: tuple[str, ...], noun: str) -> tuple[str, ...]:
    return tuple(name for name in columns if name.lower().rpartition("_")[2] == noun)


def currencies(settings: Settings, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the currencies of rows of ``silver_transactions``; empty if no declared column has them."""
    names = declared(settings, "currency")
    values = {row.get(name) for row in rows for name in names} - {None}
    return sorted({shown(str(one)) for one in values})


def sum_currencies(settings: Settings, currencies: Sequence[str]) -> Sequence[str]:
    """Return what sums of amounts in some currencies are in: the base currency, if the lake has one."""
    return currencies if settings.currency is None else (settings.currency.base,)


def country(settings: Settings, row: Mapping[str, Any]) -> str:
    """Return the countries of a row of ``silver_transactions``, in the order of the columns."""
    names = declared(settings, "country")
    return ", ".join(dict.fromkeys(shown(str(row[name])) for name in names if row.get(name) is not None))


def amount(value: float | None, of: Sequence[str] = ()) -> str:
    """Write an amount; a sum of several currencies names all of them, such as ``12.00 EUR + USD``."""
    return "" if value is None else " ".join(filter(None, (f"{value:,.2f}", " + ".join(of))))


def read_currencies(store: Store, queued: Sequence[Queued]) -> dict[str, Sequence[str]]:
    """Return the currencies that the amount of each item of a queue is in, by its id."""
    if store.settings.currency is not None:
        return {one.item.item_id: sum_currencies(store.settings, ()) for one in queued}
    wanted = declared(store.settings, "currency")
    silver = SILVER_TRANSACTIONS
    days = [one.item.about for one in queued if one.item.about]
    if not wanted or not days:
        return {}
    # Silver gets a newly declared column only with its next commit.
    present = store.query(f"SELECT * FROM {silver.name} LIMIT 0", silver).column_names
    names = [name for name in wanted if name in present]
    window = Window(min(day.first for day in days), max(day.last for day in days))
    ids = sorted({id_ for one in queued for id_ in one.item.transaction_ids})
    drawn = sorted({one.item.account_id for one in queued if not one.item.transaction_ids})
    rows = store.query(
        f"SELECT {sql_text.names(('transaction_id', 'account_id', 'date', *names))} FROM {silver.name} "
        f"WHERE {window.sql} AND ({one_of('transaction_id', ids)} OR {one_of('account_id', drawn)})",
        silver,
    ).to_pylist()
    by_id = {row["transaction_id"]: row for row in rows}
    by_account = defaultdict(list)
    for row in rows:
        by_account[row["account_id"], row["date"]].append(row)
    return {
        one.item.item_id: currencies(
            store.settings,
            [by_id[id_] for id_ in one.item.transaction_ids if id_ in by_id]
            if one.item.transaction_ids
            else by_account[one.item.account_id, one.row["day"]],
        )
        for one in queued
    }
