"""Transactions: the oracle's rows go into ``silver_transactions``, and through the detector's stream."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.streams import detect, stream
from tests.oracle import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
MARCH_7 = 1_772_841_600 * SECOND


def id_of(row: Row) -> str:
    return f"{row.source}-{row.position}"


def time_of(row: Row) -> datetime:
    return EPOCH + timedelta(microseconds=row.time)


def silver(rows: Iterable[Row]) -> pa.Table:
    """Rows of silver_transactions."""
    full = [
        {
            **row._asdict(),
            "transaction_id": id_of(row),
            "timestamp": time_of(row),
            "label": False,
            "date": time_of(row).date(),
        }
        for row in rows
    ]
    return pa.Table.from_pylist(full, tables.SILVER_TRANSACTIONS.schema)


def land(lake: Any, rows: Iterable[Row]) -> None:
    """Append rows to silver_transactions, as one commit."""
    lake.writer(tables.SILVER_TRANSACTIONS).write(silver(rows), "append")


def detected(lake: Any, *batches: list[Row]) -> list[tuple[str, str]]:
    """Land each batch and run the stream over it, as a restarted process does; the pairs of small and large ones."""
    for rows in batches:
        land(lake, rows)
        stream.run(lake, detect.streams(lake), "available-now")
    pairs = lake.store.query(
        f"SELECT evidence FROM {tables.SILVER_ALERTS.name} WHERE kind = 'small_then_large'", tables.SILVER_ALERTS
    )
    return sorted(ids_of(row["evidence"]) for row in pairs.to_pylist())


def ids_of(evidence: Iterable[Any]) -> tuple[str, ...]:
    """The ids of an alert's transactions."""
    return tuple(part["transaction_id"] for part in evidence)
