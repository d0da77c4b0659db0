"""SQL text: writes values as literals and conditions that both Spark and DataFusion accept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

from fraudlake.values import MOST_AMOUNT

_MOST_LISTED = 5_000
"""DataFusion filters by a list recursively: one of some 20,000 values overflows the stack of a thread and ends the
process with a segmentation fault (seen in deltalake 1.6.6)."""
_READ_APART = re.compile(r"(['\\$])")


def literal(text: str) -> str:
    r"""Return a text as an SQL expression.

    Spark and DataFusion parse quotes and backslashes differently, and Spark replaces ``${name}`` by a setting.
    """
    if not _READ_APART.search(text):
        return f"'{text}'"
    parts = [f"chr({ord(part)})" if part in "'\\$" else f"'{part}'" for part in _READ_APART.split(text) if part]
    return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]


def spark_literal(text: str) -> str:
    """Return a text as a literal of Spark's SQL, where an expression as from :func:`literal` is not allowed."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def value(constant: object) -> str:
    """Return a value as SQL: a text, number, boolean, null, day, time with its zone, or a list of these."""
    if constant is None:
        return "NULL"
    if isinstance(constant, datetime):
        return f"TIMESTAMP '{constant.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
    if isinstance(constant, date):
        return f"DATE '{constant}'"
    if isinstance(constant, list):
        return f"array({', '.join(map(value, constant))})"
    if isinstance(constant, bool | int | float):
        return str(constant).lower()
    return literal(str(constant))


def name(column: str) -> str:
    """Return the name of a column as SQL, also if it is a keyword or has capital letters."""
    return f"`{column}`"


def names(columns: Iterable[str]) -> str:
    """Return the names of columns as SQL, separated by commas."""
    return ", ".join(map(name, columns))


def one_of(column: str, values: Iterable[object]) -> str:
    """Return the SQL condition that a column has one of some values, which is false if there are none.

    A condition of many values has a subquery, which is allowed in ``WHERE`` alone: see :func:`is_in`.
    """
    given = [*values]
    if len(given) <= _MOST_LISTED:
        return is_in(column, given)
    rows = ", ".join(f"({value(one)})" for one in given)
    return f"{column} IN (SELECT one FROM (VALUES {rows}) listed(one))"


def is_in(column: str, values: Iterable[object]) -> str:
    """Return the condition of :func:`one_of` for ``SELECT``, ``ORDER BY`` and ``MERGE``, which allow no subquery."""
    listed = ", ".join(map(value, values))
    return f"{column} IN ({listed})" if listed else "false"


def bounded_sum(amount: str) -> str:
    """Return the SQL sum of amounts, each clipped to :data:`MOST_AMOUNT` so that the sum stays finite."""
    most = value(MOST_AMOUNT)
    return f"sum(greatest(least({amount}, {most}), -{most}))"
