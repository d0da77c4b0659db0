"""Rate file: reads rates of exchange from CSV or parquet, and refuses a file with a value that cannot be one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.errors import UsageError
from fraudlake.settings.currency import CODE
from fraudlake.text import table_file

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("date", "currency", "rate")
"""The columns of a file; others are ignored."""
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_LEAST = 1e-12
_MOST = 1e12


def read(file: Path, base: str, is_inverted: bool = False) -> pa.Table:
    """Return the rates of a file: ``date, currency, rate``, units of the base currency for one unit.

    Args:
        file: CSV with a header, or parquet.
        base: the base currency, which has no rate.
        is_inverted: the file has units of the currency for one unit of the base, as the European Central Bank does.

    Raises:
        UsageError: it cannot be read, lacks a column, or has a wrong value or two rates for one day and currency.
    """
    texts = _trimmed(file, table_file.read(file))
    days = _days(file, texts)
    _require_codes(file, texts, base)
    rates = _numbers(file, texts)
    rows = pa.table(
        {"date": days, "currency": texts["currency"], "rate": pc.divide(1.0, rates) if is_inverted else rates}
    )
    _require_once(file, rows)
    return rows


def _trimmed(file: Path, table: pa.Table) -> pa.Table:
    """Return the columns as texts without spaces around them; null becomes an empty text."""
    for name in NAMES:
        if table.column_names.count(name) != 1:
            raise UsageError(
                f"{file}: needs the columns {', '.join(NAMES)}, each once: it has {', '.join(table.column_names)}"
            )
    if pa.types.is_timestamp(table["date"].type):
        table = table.set_column(table.column_names.index("date"), "date", table["date"].cast(pa.date32()))
    return pa.table({name: table_file.texts(file, table, name) for name in NAMES})


def _days(file: Path, texts: pa.Table) -> pa.Array:
    column = texts["date"]
    distinct = pc.unique(column)
    parsed = pc.strptime(distinct, format="%Y-%m-%d", unit="s", error_is_null=True)
    # A day that the month does not have becomes one of the next month.
    is_right = pc.equal(pc.strftime(parsed, format="%Y-%m-%d"), distinct).fill_null(False)
    if (at := pc.index(is_right, False).as_py()) >= 0:
        raise UsageError(f"{file}: date '{distinct[at].as_py()}' must be a day such as 2026-03-07")
    return parsed.cast(pa.date32()).take(pc.index_in(column, distinct))


def _require_codes(file: Path, texts: pa.Table, base: str) -> None:
    distinct = pc.unique(texts["currency"])
    is_right = pc.match_substring_regex(distinct, CODE)
    if (at := pc.index(is_right, False).as_py()) >= 0:
        raise UsageError(
            f"{file}: currency '{distinct[at].as_py()}' must be a code of three capital letters such as USD"
        )
    if pc.index(distinct, base).as_py() >= 0:
        raise UsageError(f"{file}: {base} is the base currency, whose rate is 1: leave it out")


def _numbers(file: Path, texts: pa.Table) -> pa.Array:
    column = texts["rate"].combine_chunks()
    is_number = pc.match_substring_regex(column, _NUMBER)
    rates = pc.if_else(is_number, column, "0").cast(pa.float64())
    is_right = pc.and_(pc.greater_equal(rates, _LEAST), pc.less_equal(rates, _MOST))
    if (at := pc.index(is_right, False).as_py()) >= 0:
        row = texts.slice(at, 1).to_pylist()[0]
        raise UsageError(
            f"{file}: rate '{row['rate']}' of {row['currency']} on {row['date']} must be a number from "
            f"{_LEAST:g} to {_MOST:g}"
        )
    return rates


def _require_once(file: Path, rows: pa.Table) -> None:
    counts = rows.group_by(["date", "currency"]).aggregate([([], "count_all")])
    if (at := pc.index(pc.equal(counts["count_all"], 1), False).as_py()) >= 0:
        row = counts.slice(at, 1).to_pylist()[0]
        raise UsageError(f"{file}: has {row['count_all']} rates of {row['currency']} on {row['date']}: leave one")
