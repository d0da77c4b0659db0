"""Rates: adds rates of exchange to ``silver_rates``, and lists them and the days that lack one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.errors import UsageError
from fraudlake.tables import SILVER_RATES, SILVER_TRANSACTIONS
from fraudlake.text import sql_text
from fraudlake.values import BASE_AMOUNT

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.settings import Settings
    from fraudlake.settings.currency import Currency

_NUMBERED = (
    "SELECT date, currency, rate, source, author, at, "
    "row_number() OVER (PARTITION BY date, currency ORDER BY at DESC) AS nth "
    f"FROM {SILVER_RATES.name}"
)
_IS_MISSING = f"{BASE_AMOUNT} IS NULL"


@dataclass(frozen=True)
class Loaded:
    """Numbers of rates: added as new, corrected, and present before with the same value."""

    new: int
    corrected: int
    same: int


@dataclass(frozen=True)
class Missing:
    """The payments of a day and currency without a base amount; the currency is null if they have none."""

    date: date
    currency: str | None
    transactions: int


class Counts(NamedTuple):
    """Numbers of payments without a base amount: those whose currency has no rate, and those that name none."""

    without_rate: int = 0
    without_currency: int = 0


def require_currency(settings: Settings) -> Currency:
    """Return the setting ``currency``.

    Raises:
        UsageError: the lake does not have it.
    """
    if settings.currency is None:
        raise UsageError(
            "the lake has amounts of one currency: declare [currency] with 'fraudlake define' "
            "(docs/how-to/currencies.md)"
        )
    return settings.currency


def load(store: Store, rates: pa.Table, source: str, author: str, is_correction: bool = False) -> Loaded:
    """Append rates, in one commit, that the lake lacks.

    Args:
        store: the lake.
        rates: ``date, currency, rate``, each date and currency once.
        source: name of the file.
        author: who loads them.
        is_correction: append rates that differ from present ones, too, which from then on count.

    Raises:
        UsageError: a rate differs from a present one, and this is no correction. Nothing was written.
    """
    present = _present_rates(store, rates)
    joined = rates.join(present, keys=["date", "currency"], join_type="left outer").combine_chunks()
    is_new = pc.is_null(joined["present"])
    is_different = pc.fill_null(pc.not_equal(joined["rate"], joined["present"]), False)
    different = joined.filter(is_different)
    if len(different) and not is_correction:
        raise UsageError(f"{source}: {_contradiction(different)}")
    added = joined.filter(pc.or_(is_new, is_different)).select(["date", "currency", "rate"])
    if len(added):
        newest = max((at.as_py() for at in (pc.max(present["at"]),) if at.is_valid), default=None)
        now = datetime.now(UTC)
        at = now if newest is None else max(now, newest + timedelta(microseconds=1))
        every = {
            "source": pa.scalar(source),
            "author": pa.scalar(author),
            "at": pa.scalar(at, pa.timestamp("us", "UTC")),
        }
        for name, scalar in every.items():
            added = added.append_column(name, pa.repeat(scalar, len(added)))
        store.append(SILVER_RATES, added.sort_by([("date", "ascending"), ("currency", "ascending")]))
    return Loaded(pc.sum(is_new).as_py() or 0, len(different), len(rates) - len(added))


def _present_rates(store: Store, rates: pa.Table) -> pa.Table:
    """Return the present rates of the same days: ``date, currency, present, at``."""
    span = pc.min_max(rates["date"])
    first, last = (sql_text.value(span[name].as_py()) for name in ("min", "max"))
    days = f"date BETWEEN {first} AND {last}" if len(rates) else "false"
    statement = f"SELECT date, currency, rate AS present, at FROM ({_NUMBERED}) numbered WHERE nth = 1 AND {days}"
    rows = store.query(statement, SILVER_RATES)
    types = pa.schema(
        {"date": pa.date32(), "currency": pa.string(), "present": pa.float64(), "at": pa.timestamp("us", "UTC")}
    )
    return rows.cast(types)


def _contradiction(different: pa.Table) -> str:
    first = different.sort_by([("date", "ascending"), ("currency", "ascending")]).slice(0, 1).to_pylist()[0]
    others = len(different) - 1
    more = f" (and {others:,} more)" if others else ""
    return (
        f"{first['currency']} on {first['date']} is {first['rate']!r} and differs from the lake's {first['present']!r}"
        f"{more}: leave it out, or give --correct"
    )


def summary(store: Store) -> list[dict[str, Any]]:
    """Return a row for each currency: ``currency, rates, first, last`` (days) and ``latest``, the rate of the last."""
    statement = (
        "SELECT currency, count(*) AS rates, min(date) AS first, max(date) AS last, "
        "max(CASE WHEN backwards = 1 THEN rate END) AS latest FROM ("
        "SELECT *, row_number() OVER (PARTITION BY currency ORDER BY date DESC) AS backwards "
        f"FROM ({_NUMBERED}) numbered WHERE nth = 1) counted GROUP BY currency ORDER BY currency"
    )
    return list(store.query(statement, SILVER_RATES).to_pylist())


def read_currency(store: Store, currency: str) -> list[dict[str, Any]]:
    """Return the rates of a currency by day, the corrected ones, too: the row whose ``nth`` is 1 counts."""
    of_currency = f"currency = {sql_text.literal(currency)}"
    statement = f"SELECT * FROM ({_NUMBERED}) numbered WHERE {of_currency} ORDER BY date, nth"
    return list(store.query(statement, SILVER_RATES).to_pylist())


def count_missing(store: Store) -> Counts:
    """Count the payments of silver without a base amount; there are none in a lake of one currency."""
    if store.settings.currency is None:
        return Counts()
    column = sql_text.name(store.settings.currency.column)
    statement = (
        f"SELECT count(CASE WHEN trim({column}) <> '' THEN 1 END) AS without_rate, count(*) AS missing "
        f"FROM {SILVER_TRANSACTIONS.name} WHERE {_IS_MISSING}"
    )
    (row,) = store.query(statement, SILVER_TRANSACTIONS).to_pylist()
    return Counts(row["without_rate"], row["missing"] - row["without_rate"])


def missing(store: Store) -> list[Missing]:
    """Return the payments of silver without a base amount, by day and currency."""
    column = sql_text.name(require_currency(store.settings).column)
    statement = (
        f"SELECT date, upper(trim({column})) AS currency, count(*) AS transactions "
        f"FROM {SILVER_TRANSACTIONS.name} WHERE {_IS_MISSING} GROUP BY 1, 2 ORDER BY 1, 2 NULLS LAST"
    )
    return [Missing(**row) for row in store.query(statement, SILVER_TRANSACTIONS).to_pylist()]
