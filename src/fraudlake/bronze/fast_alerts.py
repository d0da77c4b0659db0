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

_Place = tuple[str | int, ...]
_OF_DATA = ("alert_id", "rule", "account_id", "transaction_id", "timestamp", "amount", "kind")
_PLACES: dict[str, _Place] = {
    **{name: ("data", name) for name in _OF_DATA},
    "first_transaction_id": ("data", "evidence", 0, "transaction_id"),
    "first_timestamp": ("data", "evidence", 0, "timestamp"),
    "rule_version": ("data", "rule_version"),
    "detected_at": ("data", "detected_at"),
    "transaction_partition": ("transactionpartition",),
    "transaction_offset": ("transactionoffset",),
    "transaction_appended_at": ("transactiontime",),
}
"""Where each column is in the event: under ``data``, as in a delivered alert, or as an extension attribute."""
_OPTIONAL = ("rule_version", "detected_at")
_PARSED = {column.name: OF_JSON[column.type] for column in BRONZE_FAST_ALERTS.fields if column.name in _PLACES}


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
        place = _PLACES[column]
        value = _value(event, place)
        row[column] = None if value is None else fit(value)
        if row[column] is None and (value is not None or column not in _OPTIONAL):
            raise UnreadableError(f"{_path(place)} {'is missing' if value is None else 'does not fit'}")
    return row


def _value(event: dict[str, Any], place: _Place) -> Any:
    """Return the value at a place of an event; None if there is none."""
    value: Any = event
    for part in place:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _path(place: _Place) -> str:
    return ".".join(map(str, place)).replace(".0.", "[0].")
