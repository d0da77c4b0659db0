"""Event: an alert as a CloudEvent, the JSON object that every receiver gets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fraudlake.text import json_text

Event = dict[str, Any]
"""A CloudEvent 1.0 in its JSON format; ``id`` is the ``alert_id`` and ``data`` are the columns of ``silver_alerts``.

Each transaction of ``evidence`` has its part of ``evidence_columns`` as ``columns``, if the rule reads such columns.
"""

IN_EVIDENCE = "evidence_columns"
"""The column of ``silver_alerts`` that is not a field of ``data``."""
TYPE = "fraudlake.alert.v1"
CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"
BATCH_CONTENT_TYPE = "application/cloudevents-batch+json; charset=UTF-8"


def make_event(alert: Mapping[str, Any], lake: str) -> Event:
    """Return the event of a row of ``silver_alerts``; the same alert gives the same event each time.

    Args:
        alert: the row as Arrow gives it to Python: its times have a time zone, a map is a list of pairs.
        lake: the lake's name, which ``source`` ends with.
    """
    data = {name: _json_value(value) for name, value in alert.items()}
    data["measures"] = dict(data["measures"])
    further = data.pop(IN_EVIDENCE, None)
    if further is not None:
        data["evidence"] = [
            {**part, "columns": dict(columns)} for part, columns in zip(data["evidence"], further, strict=True)
        ]
    return {
        "specversion": "1.0",
        "id": data["alert_id"],
        "source": f"/fraudlake/{lake}",
        "type": TYPE,
        "subject": data["entity_key"],
        "time": data["detected_at"],
        "datacontenttype": "application/json",
        "data": data,
    }


def as_json(event: Event | list[Event]) -> str:
    """Return an event, or a batch of events, as one line of JSON."""
    return json_text.dumps(event, separators=(",", ":"), ensure_ascii=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: _json_value(part) for name, part in value.items()}
    return [_json_value(part) for part in value] if isinstance(value, list) else value
