"""SQL text: values become literals and conditions that both Spark and DataFusion read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime

from fraudlake.values import MOST_AMOUNT

_READ_APART = re.compile(r"(['\\$])")


def literal(text: str) -> str:
    r"""Return a text as a value in SQL.

    Spark and DataFusion each read quote and backslash in a way of their own; Spark replaces ``${name}`` by a setting.
    """
    if not _READ_APART.search(text):
        return f"'{text}'"
    parts = [f"chr({ord(part)})" if part in "'\\$" else f"'{part}'" for part in _READ_APART.split(text) if part]
    return f"concat({', '.join(parts)})" if len(parts) > 1 else parts[0]


def spark_literal(text: str) -> str:
    """Return a text as a value in Spark's SQL, for places that take no expression, such as :func:`literal` gives."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def value(given: object) -> str:
    """Return a value as SQL: a text, a number, a truth value, null, a day, a time with its zone, or a list of these."""
    if given is None:
        return "NULL"
    if isinstance(given, datetime):
        return f"TIMESTAMP '{given.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
    if isinstance(given, date):
        return f"DATE '{given}'"
    if isinstance(given, list):
        return f"array({', '.join(map(value, given))})"
    if isinstance(given, bool | int | float):
        return str(given).lower()
    return literal(str(given))


def one_of(column: str, values: Iterable[object]) -> str:
    """Return the condition that a column has one of some values; without any, it is false."""
    listed = ", ".join(map(value, values))
    return f"{column} IN ({listed})" if listed else "false"


def bounded_sum(amount: str) -> str:
    """Return the sum of a column of amounts; each counts for at most :data:`MOST_AMOUNT`, so that it stays finite."""
    most = value(MOST_AMOUNT)
    return f"sum(greatest(least({amount}, {most}), -{most}))"
