"""Columns that the query of a pattern may name, by silver's names and those of the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from fraudlake.match_recognize import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Column

TABLES = ("transactions", "silver_transactions")
"""The names that a query may give the transactions."""
TIME = "timestamp"
"""The column of the event time, by which rows are ordered."""
_COLUMNS = {
    "transaction_id": ("transaction_id", STRING),
    "account_id": ("accountId", STRING),
    TIME: ("dt", TIMESTAMP),
    "amount": ("amount", DOUBLE),
    "label": ("alert", BOOLEAN),
}
"""Silver's columns: the name in the payload, and the type."""
_TYPES = {"string": STRING, "bigint": BIGINT, "double": DOUBLE, "boolean": BOOLEAN, "timestamp": TIMESTAMP}


def query_columns(declared: Mapping[str, Any]) -> dict[str, Column]:
    """Return the columns by the names that a query may give them.

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
    """Return the columns, of those that the rows have, by which transactions of the same time are ordered."""
    return [name for name in ("source", "position") if name in rows.schema.names]
