"""Rows: the columns of the transactions that streams divide into buckets."""

from __future__ import annotations

import pyarrow as pa

ROWS = pa.schema(
    [
        ("account", pa.int64()),  # 64-bit hash of account_id
        ("time", pa.int64()),  # event time, microseconds since 1970 UTC
        ("amount", pa.float64()),
        ("source", pa.dictionary(pa.int32(), pa.string())),
        ("position", pa.int64()),
        ("account_id", pa.string()),  # null unless the row is small or large for some rule, or may be late
        ("transaction_id", pa.string()),  # null unless the row is small or large for some rule
        ("label", pa.bool_()),
    ]
)
"""A bucket's transactions."""
