"""Deliver: sends alerts to a destination, and records the outcome of each in ``silver_deliveries``."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.delivery import event, secrets
from fraudlake.delivery.destinations import DESTINATIONS
from fraudlake.delivery.sink import Outcome, Sink
from fraudlake.delivery.suppression import HeldBack, held_back, minute_of
from fraudlake.lake import json_file, merge
from fraudlake.lake.appender import Appender
from fraudlake.streams.stream import Stream
from fraudlake.text.sql_text import literal
from fraudlake.times.calendar import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.settings import Settings

log = logging.getLogger(__name__)

DELIVERED = "delivered"
DEAD = "dead"
HAS_ALERT = f"alert_id IN (SELECT alert_id FROM {tables.SILVER_ALERTS.name})"
"""The condition of a row of ``silver_deliveries`` whose alert no replay and no ``row_retention`` has removed."""

_NAMED = ("alert_id", "account_id", "entity", "entity_key", "timestamp", "detected_at")
"""The columns of an alert that ``silver_deliveries`` has, too."""
_MICRO_BATCH = "1m"
"""Approximate size of a micro-batch: some ten thousand alerts, which are in memory at once."""
_RETRIED = 1000
"""Number of dead letters in memory at once."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Retried:
    """Outcome of the dead letters of a destination that were sent again."""

    delivered: int
    dead: int


def streams(lake: Lake, to: str, from_now: bool = False) -> list[Stream]:
    """``silver_alerts`` → a log, files, a topic, a webhook or a database, and ``silver_deliveries``.

    Args:
        lake: the lake.
        to: the destination; each has a separate checkpoint.
        from_now: a stream that has not begun omits the alerts that were detected before now.

    Raises:
        UsageError: a setting of the destination is missing or wrong.
        FraudlakeError: its secret cannot be read.
    """
    step = step_of(to)
    settings = secrets.with_secrets(lake.settings, to)
    DESTINATIONS[to].sink(settings, lake)
    appender = Appender.of(lake, step)
    begin = _begin(lake, lake.checkpoint(step), from_now)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        alerts = sorted(batch.toArrow().to_pylist(), key=lambda alert: (alert["detected_at"], alert["alert_id"]))
        if alerts:
            rows = _deliver(lake, to, settings, alerts, f"{appender.application}-{batch_id:010}")
            appender.append(lake, lake.session.createDataFrame(rows), tables.SILVER_DELIVERIES, batch_id)

    def rows() -> DataFrame:
        alerts = lake.read_stream(tables.SILVER_ALERTS, max_bytes=_MICRO_BATCH)
        return alerts if begin is None else alerts.where(F.col("detected_at") >= F.timestamp_micros(F.lit(begin)))

    def delivered() -> DataFrame:
        return lake.read(tables.SILVER_DELIVERIES).where(F.col("destination") == to)

    return [
        Stream(
            step,
            rows,
            write,
            reads=(tables.SILVER_ALERTS,),
            writes={tables.SILVER_DELIVERIES: f"destination = '{to}'"},
            persist=False,
            count_rows=lambda first: appender.rows_since(lake, tables.SILVER_DELIVERIES, first),
        )
    ]


def step_of(to: str) -> str:
    """Return the name of the step that delivers to a destination."""
    return f"deliver_{to}"


def retry_dead(lake: Lake, to: str) -> Retried:
    """Send the dead letters of a destination again, the oldest first, until none of a thousand is delivered.

    Letters whose alerts a replay or ``row_retention`` has removed are left out. The destination's stream may run
    meanwhile.

    Raises:
        UsageError: a setting of the destination is missing or wrong.
        FraudlakeError: its secret cannot be read, or another process sends its dead letters.
    """
    settings = secrets.with_secrets(lake.settings, to)
    sink = DESTINATIONS[to].sink(settings, lake)
    delivered = 0
    with lake.exclusive(f"retry_{to}"):
        where = f"WHERE destination = '{to}' AND status = '{DEAD}' AND {HAS_ALERT} ORDER BY detected_at, alert_id"
        read = (tables.SILVER_DELIVERIES, tables.SILVER_ALERTS)
        letters = lake.store.query(f"SELECT alert_id FROM {tables.SILVER_DELIVERIES.name} {where}", *read)
        dead = letters["alert_id"].to_pylist()
        for start in range(0, len(dead), _RETRIED):
            ids = ", ".join(map(literal, dead[start : start + _RETRIED]))
            where = f"WHERE alert_id IN ({ids}) ORDER BY detected_at, alert_id"
            alerts = lake.store.query(
                f"SELECT * FROM {tables.SILVER_ALERTS.name} {where}", tables.SILVER_ALERTS
            ).to_pylist()
            outcomes = _send(sink, lake, alerts, f"retry-{hashlib.sha256(ids.encode()).hexdigest()[:32]}")
            _update(lake, _rows(to, alerts, outcomes))
            now_delivered = sum(outcome.reason is None for outcome in outcomes)
            delivered += now_delivered
            if not now_delivered:
                break
    return Retried(delivered, len(dead) - delivered)


def _begin(lake: Lake, checkpoint: Checkpoint, from_now: bool) -> int | None:
    """Return the time from which on alerts are delivered, in microseconds since 1970; None if all are.

    It is recorded, because a run without alerts leaves no other trace of the stream's start. It is at most just after
    the last alert: otherwise a clock that is ahead would omit the alerts of years.
    """
    file = checkpoint.folder / "begin.json"
    if from_now and checkpoint.is_new and not file.exists():
        (last,) = lake.store.query(
            f"SELECT max(detected_at) AS at FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS
        ).to_pylist()
        detected = (last["at"] - EPOCH) // MICROSECOND + 1 if last["at"] else 0
        json_file.write(file, {"detected_at": min(time.time_ns() // 1000, detected)})
    return int(json.loads(file.read_text())["detected_at"]) if file.exists() else None


def _deliver(lake: Lake, to: str, settings: Settings, alerts: Sequence[Row], name: str) -> pa.Table:
    """Send the alerts that are not suppressed or limited; return the rows of ``silver_deliveries``."""
    reasons = held_back(
        alerts, _sent(lake, to, settings, alerts), settings.suppress_within, settings.max_alerts_per_minute
    )
    chosen = [alert for alert, reason in zip(alerts, reasons, strict=True) if reason is None]
    outcomes = iter(_send(DESTINATIONS[to].sink(settings, lake), lake, chosen, name))
    return _rows(to, alerts, [reason or next(outcomes) for reason in reasons])


def _sent(lake: Lake, to: str, settings: Settings, alerts: Sequence[Row]) -> list[Row]:
    """Return earlier alerts that can still suppress one of these."""
    within = settings.suppress_within
    most = settings.max_alerts_per_minute
    if not (within or most):
        return []
    times = [alert["timestamp"] for alert in alerts]
    near = f"timestamp BETWEEN {_literal(min(times) - within)} AND {_literal(max(times) + within)}"
    counts = f"detected_at >= {_literal(minute_of(alerts[0]))}"
    where = " OR ".join(condition for condition, is_used in ((near, within), (counts, most)) if is_used)
    earlier = lake.store.query(
        f"SELECT {', '.join(_NAMED)} FROM {tables.SILVER_DELIVERIES.name} "
        f"WHERE destination = '{to}' AND status IN ('{DELIVERED}', '{DEAD}') AND ({where})",
        tables.SILVER_DELIVERIES,
    )
    rows: list[Row] = earlier.to_pylist()
    return rows


def _literal(time: datetime) -> str:
    return f"TIMESTAMP '{time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%fZ}'"


def _send(sink: Sink, lake: Lake, alerts: Sequence[Row], name: str) -> list[Outcome]:
    outcomes = sink.send([event.make_event(alert, Path(lake.name).name) for alert in alerts], name) if alerts else []
    dead = [outcome.reason for outcome in outcomes if outcome.reason is not None]
    if dead:
        log.warning("%d of %d alerts are not delivered: %s", len(dead), len(outcomes), dead[0])
    return outcomes


def _rows(to: str, alerts: Sequence[Row], outcomes: Sequence[Outcome | HeldBack]) -> pa.Table:
    now = datetime.now(UTC)
    rows = [
        {
            "destination": to,
            **{name: alert[name] for name in _NAMED},
            **_columns(outcome),
            "noted_at": now,
        }
        for alert, outcome in zip(alerts, outcomes, strict=True)
    ]
    return pa.Table.from_pylist(rows, tables.SILVER_DELIVERIES.schema)


def _columns(outcome: Outcome | HeldBack) -> Row:
    if isinstance(outcome, HeldBack):
        return {"status": outcome.status, "attempts": 0, "reason": outcome.reason}
    status = DELIVERED if outcome.reason is None else DEAD
    return {"status": status, "attempts": outcome.attempts, "reason": outcome.reason}


def _update(lake: Lake, rows: pa.Table) -> None:
    """Update the rows of dead letters with their new outcomes."""
    merge.merge(
        lake,
        lake.session.createDataFrame(rows),
        tables.SILVER_DELIVERIES,
        f"{merge.same(('destination', 'alert_id'))} AND t.status = '{DEAD}'",
        "WHEN MATCHED THEN UPDATE SET t.status = s.status, t.attempts = t.attempts + s.attempts, "
        "t.reason = s.reason, t.noted_at = s.noted_at",
    )
