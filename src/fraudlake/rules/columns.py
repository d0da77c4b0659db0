"""Columns: maps the names that a pattern's query may use, those of silver and of the payload, to columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fraudlake_patterns import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Column

TABLES = ("transactions", "silver_transactions")
"""The names of the transactions that a query may use."""
TIME = "timestamp"
"""The column of the event time, by which rows are ordered."""
_COLUMNS = {
    "transaction_id": ("transaction_id", STRING),
    "account_id": ("accountId", STRING),
    TIME: ("dt", TIMESTAMP),
    "amount": ("amount", DOUBLE),
    "label": ("alert", BOOLEAN),
}
"""Silver's columns, each with its name in the payload and its type."""
_TYPES = {"string": STRING, "bigint": BIGINT, "double": DOUBLE, "boolean": BOOLEAN, "timestamp": TIMESTAMP}


def query_columns(declared: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns by the names that a query may use.

    Args:
        declared: the setting ``columns``.
    """
    names: dict[str, Column] = {}
    for name, (field, type_) in _COLUMNS.items():
        names[field] = names[name] = Column(name, type_)
    for name, column in declared.items():
        names[name] = names[column.field] = Column(name, _TYPES[column.type])
    return names


def arrival(rows: pa.Table) -> list[str]:
    """Return the columns of the rows by which transactions of the same time are ordered."""
    return [name for name in ("source", "position") if name in rows.schema.names]
