"""Activity: shows what a lake's streams do now, from checkpoints and commits; on a laptop without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.lake import contents
from fraudlake.lake.commit import new_rows
from fraudlake.sources import file_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Batch, Checkpoint
    from fraudlake.lake.commit import Commit
    from fraudlake.tables import Table

WINDOW = timedelta(minutes=1)
"""The time over which rates are computed."""
_INGESTED = {
    "ingest": tables.BRONZE_TRANSACTIONS,
    "ingest_kafka": tables.BRONZE_TRANSACTIONS,
    "ingest_fast_alerts": tables.BRONZE_FAST_ALERTS,
}
"""The tables that streams from files and topics write."""

_BY_NAME = {table.name: table for table in contents.TABLES}
_SHOWN = ("alert_id", "rule", "account_id", "amount", "explanation", "timestamp", "detected_at")


@dataclass(frozen=True)
class StreamActivity:
    """What a stream does now."""

    step: str
    batch: int | None = None
    """The latest committed micro-batch; None if there is none."""
    committed_at: datetime | None = None
    """When it was committed (UTC)."""
    seconds: float | None = None
    """How long it took."""
    running_since: datetime | None = None
    """When its uncommitted micro-batch began (UTC), which is in progress or was cut."""
    rate: float | None = None
    """Rows per second that it has read in :data:`WINDOW`; None if they are not recorded."""
    unread_commits: int = 0
    """Commits with rows that it has still to read."""
    unread_rows: int | None = 0
    """Rows of these commits; None if they are not recorded. For ``ingest``, rows of landed files that are unread."""
    unread_since: datetime | None = None
    """Time of the first of these commits (UTC)."""
    unread_files: int = 0
    """For ``ingest``, the number of landed files that are unread."""


@dataclass(frozen=True)
class Activity:
    """What a lake does at a moment."""

    at: datetime
    streams: list[StreamActivity]
    alerts: list[dict[str, Any]]
    """The latest alerts, the latest first: ``alert_id, rule, account_id, amount, explanation, timestamp,
    detected_at``."""


class Watcher:
    """Looks at a lake repeatedly, and reads only the changes since the last time."""

    def __init__(self, lake: Lake, alerts: int) -> None:
        """Watch a lake, and show at most ``alerts`` of its alerts."""
        self._lake = lake
        self._limit = alerts
        self._histories: dict[str, tuple[int, list[Commit]]] = {}
        self._alerts: tuple[int, list[dict[str, Any]]] = (-1, [])

    def look(self, now: datetime) -> Activity:
        """Return the lake's activity; ``now`` is the current time (UTC)."""
        begun = [file.parent.name for file in sorted(self._lake.checkpoints.glob("*/offsets"))]
        streams = [self._activity(self._lake.checkpoint(step), now) for step in begun]
        return Activity(now, streams, self._latest_alerts())

    def _activity(self, checkpoint: Checkpoint, now: datetime) -> StreamActivity:
        pending, done = _batches(checkpoint, now - WINDOW)
        latest = done[0] if done else None
        if checkpoint.step in _INGESTED:
            recent = [commit for commit in self._history(_INGESTED[checkpoint.step]) if commit.at >= now - WINDOW]
            read = _rows(new_rows(recent, 0))
            unread = []
        else:
            read = self._read(checkpoint, done, now - WINDOW)
            unread = self._unread(checkpoint)
        counts_files = checkpoint.step == "ingest" and not self._lake.is_in_workspace
        landed = file_source.landed(self._lake) if counts_files else None
        return StreamActivity(
            checkpoint.step,
            latest.number if latest else None,
            latest.committed_at if latest else None,
            latest.seconds if latest else None,
            pending.began_at if pending else None,
            None if read is None else read / WINDOW.total_seconds(),
            len(unread),
            landed.waiting_rows if landed else _rows(unread),
            min((commit.at for commit in unread), default=None),
            landed.waiting_files if landed else 0,
        )

    def _read(self, checkpoint: Checkpoint, done: list[Batch], since: datetime) -> int | None:
        """Count the rows that micro-batches since a time have read, by the tables' commits; None if unknown."""
        recent = [batch for batch in done if batch.committed_at and batch.committed_at >= since]
        before = done[len(recent)].read_to if len(done) > len(recent) else {}
        commits = [
            commit
            for table, version in self._tables_of(checkpoint, recent[0].read_to if recent else {})
            for commit in new_rows(self._history(table), before.get(checkpoint.notes.reads[table.name], 0))
            if commit.version < version
        ]
        return _rows(commits) if checkpoint.notes.reads else None

    def _unread(self, checkpoint: Checkpoint) -> list[Commit]:
        """Return the commits with rows that a stream has still to read."""
        unread = self._tables_of(checkpoint, checkpoint.unread_versions())
        return [commit for table, version in unread for commit in new_rows(self._history(table), version)]

    def _tables_of(self, checkpoint: Checkpoint, versions: Mapping[str, int]) -> Iterator[tuple[Table, int]]:
        """Yield the tables that a stream reads, each with its version; ``versions`` has them by the table's id."""
        for name, id_ in checkpoint.notes.reads.items():
            if id_ in versions and name in _BY_NAME:
                yield _BY_NAME[name], versions[id_]

    def _history(self, table: Table) -> list[Commit]:
        version = self._lake.store.version(table)
        history = self._histories.get(table.name, (-1, []))
        if history[0] != version:
            new = self._lake.store.history(table, None if history[0] < 0 else version - history[0])
            history = self._histories[table.name] = (version, new + history[1])
        return history[1]

    def _latest_alerts(self) -> list[dict[str, Any]]:
        version = self._lake.store.version(tables.SILVER_ALERTS)
        if self._alerts[0] != version:
            latest = f"ORDER BY detected_at DESC, timestamp DESC, alert_id LIMIT {self._limit}"
            self._alerts = (
                version,
                self._lake.store.query(
                    f"SELECT {', '.join(_SHOWN)} FROM {tables.SILVER_ALERTS.name} {latest}", tables.SILVER_ALERTS
                ).to_pylist(),
            )
        return self._alerts[1]


def _batches(checkpoint: Checkpoint, since: datetime) -> tuple[Batch | None, list[Batch]]:
    """Return the uncommitted micro-batch, and those committed since a time and the one before, the latest first."""
    pending = None
    done = []
    for batch in checkpoint.latest_batches():
        if batch.committed_at is None:
            pending = batch
        else:
            done.append(batch)
            if batch.committed_at < since:
                break
    return pending, done


def _rows(commits: list[Commit]) -> int | None:
    """Add up the rows of commits; None if a commit does not record them."""
    rows = [commit.rows for commit in commits]
    return None if None in rows else sum(row or 0 for row in rows)
