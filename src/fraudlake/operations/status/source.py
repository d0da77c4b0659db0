"""Source: what has landed as files or as messages of Kafka, and how much of it is still to be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.sources import file_source, kafka, kafka_source
from fraudlake.streams import ingest

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.operations.retention import Removed


@dataclass(frozen=True)
class Source:
    """Counts of files, rows and messages."""

    landed_files: int = 0
    rejected_files: int = 0
    unread_files: int = 0
    landed: int = 0
    """Rows of all finished files, read or not, and Kafka's messages, read or not."""
    kafka_lag: int | None = None
    """Messages that are still to be read; None if the source is files."""
    kafka_missing_offsets: int = 0
    """Offsets between Kafka's rows that have no row."""
    fast_alerts: dict[str, int] = field(default_factory=dict)
    """Counts of the topic of fast alerts, if it is set: messages, distinct alerts in them, messages that are not an
    alert, and messages that are still to be read."""


def read(lake: Lake, removed: Removed) -> Source:
    """Read the figures."""
    files = file_source.landed(lake)
    kafka_lag = ingest.source_of(lake.settings).unread(lake)
    return Source(
        landed_files=files.files,
        rejected_files=files.rejected_files,
        unread_files=files.waiting_files,
        landed=files.rows + _count_messages(lake, removed) + (kafka_lag or 0),
        kafka_lag=kafka_lag,
        kafka_missing_offsets=kafka.missing_offsets(lake),
        fast_alerts=_fast_alerts(lake),
    )


def _count_messages(lake: Lake, removed: Removed) -> int:
    """Count the messages that bronze has, or had until ``row_retention`` removed them."""
    in_bronze = lake.store.count(tables.BRONZE_TRANSACTIONS, "_topic IS NOT NULL")
    return in_bronze + removed.from_kafka_or_late.get(tables.BRONZE_TRANSACTIONS.name, 0)


def _fast_alerts(lake: Lake) -> dict[str, int]:
    """Count bronze's rows of the topic of fast alerts, and the messages that are still to be read."""
    if lake.settings.source != "kafka" or lake.settings.fast_alerts_topic is None:
        return {}
    columns = "count(*) AS messages, count(DISTINCT alert_id) AS alerts, count(_error) AS rejected"
    (row,) = lake.store.query(
        f"SELECT {columns} FROM {tables.BRONZE_FAST_ALERTS.name}", tables.BRONZE_FAST_ALERTS
    ).to_pylist()
    return {**row, "lag": kafka_source.fast_alerts_lag(lake)}
