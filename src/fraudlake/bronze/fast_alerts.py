"""Fast alerts: parses the events that the fast lane writes to Kafka; other messages are stored raw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fraudlake.bronze.conversions import OF_JSON
from fraudlake.bronze.messages import UnreadableError, json_object
from fraudlake.tables import BRONZE_FAST_ALERTS

KAFKA_COLUMNS = ("value", "topic", "partition", "offset", "timestamp")
"""The columns of Spark's Kafka source that are read."""

_OF_DATA = (
    "alert_id",
    "rule",
    "account_id",
    "transaction_id",
    "timestamp",
    "amount",
    "small_transaction_id",
    "small_timestamp",
    "small_amount",
    "rule_version",
    "detected_at",
)
"""The columns under ``data`` in the event, as in a delivered alert."""
_OF_TRANSACTION = ("transaction_partition", "transaction_offset", "transaction_appended_at")
_ATTRIBUTES = dict(zip(_OF_TRANSACTION, ("transactionpartition", "transactionoffset", "transactiontime"), strict=True))
"""The columns that are extension attributes of the event, with the attributes' names."""
_REQUIRED = {*_OF_DATA[:6], *_OF_TRANSACTION}
_PARSED = {
    column.name: OF_JSON[column.type]
    for column in BRONZE_FAST_ALERTS.fields
    if column.name in (*_OF_DATA, *_OF_TRANSACTION)
}


def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse batches of :data:`KAFKA_COLUMNS` into batches of ``bronze_fast_alerts``, one row per message."""
    schema = BRONZE_FAST_ALERTS.schema
    for batch in batches:
        if batch.num_rows:
            rows = [parse(value) for value in batch.column("value").to_pylist()]
            parsed = (*_PARSED, "_error")
            columns = {name: pa.array([row.get(name) for row in rows], schema.field(name).type) for name in parsed}
            columns |= {f"_{name}": batch.column(name) for name in ("topic", "partition", "offset")}
            now = pa.scalar(time.time_ns() // 1000, schema.field("_ingested_at").type)
            columns |= {
                "value": batch.column("value"),
                "appended_at": batch.column("timestamp").cast(schema.field("appended_at").type),
                "_ingested_at": pa.repeat(now, batch.num_rows),
                "date": columns["timestamp"].cast(pa.date32(), safe=False),
            }
            yield pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def parse(value: bytes | None) -> dict[str, Any]:
    """Parse one message; never raises.

    Returns:
        The columns for which the event has values, times in microseconds since 1970; only ``_error``, the reason, if
        the message is not an alert's event, or lacks the place of its transaction.
    """
    try:
        return _row(json_object(value))
    except UnreadableError as reason:
        return {"_error": str(reason)}
    except RecursionError:
        return {"_error": "nested too deeply"}


def _row(event: dict[str, Any]) -> dict[str, Any]:
    data = event.get("data")
    if not isinstance(data, dict):
        raise UnreadableError("data is not an object")
    row = {}
    for column, fit in _PARSED.items():
        given = event.get(_ATTRIBUTES[column]) if column in _ATTRIBUTES else data.get(column)
        row[column] = None if given is None else fit(given)
        if row[column] is None and (column in _REQUIRED or given is not None):
            name = _ATTRIBUTES.get(column, f"data.{column}")
            raise UnreadableError(f"{name} {'is missing' if given is None else 'does not fit'}")
    return row
