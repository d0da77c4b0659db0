"""The fast lane: runs one query in Real-time Mode, from the topic of transactions to that of alerts, until stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError, cause_of
from fraudlake.kafka import client
from fraudlake.lake import json_file, lock
from fraudlake.lake.recent_progress import RecentProgress
from fraudlake.process import stop
from fraudlake_lane import alerts, messages, neighbours, session, topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StateOperatorProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from fraudlake.settings import Settings
    from fraudlake_lane.rules import LaneRules
    from fraudlake_lane.session import Session


_LOOK_SECONDS = 0.2
FIRST_BATCHES = 6
_FIRST_BATCH = timedelta(seconds=5)
"""Number of short batches of a run, and their length: the first two commits of a process stop the lane for seconds,
later ones for less than one, since Java has compiled the code of a commit by then (seen in Spark 4.3)."""


@dataclass
class Totals:
    """Totals of the committed batches of a run."""

    batches: int = 0
    messages: int = 0
    rejected: int = 0
    """Messages that the quality rules reject."""
    other_keys: int = 0
    """Messages whose key is not their account."""
    late: int = 0
    """Entries of the state that were too late; a late row has up to two."""
    crowded: int = 0
    """Transactions that a threshold does not evaluate: their window has more rows than the state of an account."""
    state_rows: int = 0
    """Entries of the state now."""
    _last: int = field(default=-1, repr=False)
    _progress: RecentProgress = field(default_factory=RecentProgress, repr=False)

    def add(self, query: StreamingQuery) -> bool:
        """Add a query's new progress reports; return whether there were batches."""
        before = self.batches
        for report in self._progress.read(query):
            if report.batchId > self._last:
                self._last = report.batchId
                self.batches += 1
                metrics = report.observedMetrics.get(alerts.METRICS)
                if metrics is not None:
                    self.messages += metrics["messages"]
                    self.rejected += metrics["rejected"]
                    self.other_keys += metrics["other_keys"]
                windows = report.observedMetrics.get(alerts.WINDOWS)
                if windows is not None:
                    self.crowded += windows["crowded"]
                self.late += sum(state.numRowsDroppedByWatermark for state in report.stateOperators)
                self.state_rows = sum(map(_rows, report.stateOperators))
        return self.batches > before

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


def _rows(state: StateOperatorProgress) -> int:
    """Return the entries of a state; if Spark does not count them, those that it scanned for expired ones."""
    return state.numRowsTotal or state.customMetrics.get("numRowsReadDuringEviction", 0) - state.numRowsRemoved


def checkpoint(settings: Settings, rules: LaneRules) -> Path:
    """Return the folder of the lane's checkpoint; ``--without-end`` has another, since its state differs."""
    return settings.checkpoints_path / ("realtime-without-end" if rules.is_without_end else "realtime")


def run(
    settings: Settings,
    rules: LaneRules,
    duration: timedelta | None = None,
    started: Callable[[int, datetime | None], None] = lambda partitions, since: None,
    progress: Callable[[Totals], None] = lambda totals: None,
) -> Totals:
    """Evaluate rules on the topic's messages until SIGINT or SIGTERM, or for some time.

    If a run ends in the middle of a batch, in whatever way, the next run reads the batch's messages again, and raises
    their alerts again, with the same ids.

    A run begins with short batches. A backlog's partitions are read in parallel, each at its own pace. So the watermark
    does not move, and no row counts as late, until everything is read that the topic had at the start. Then the query
    is restarted with a watermark that moves, and with the batch length of the settings.

    Args:
        settings: topics, brokers, quality rules, and the time between commits.
        rules: the rules.
        duration: how long to run; by default until stopped.
        started: called when the query has started, with the number of its partitions, and :func:`complete_since`.
        progress: called after each batch.

    Raises:
        UsageError: the topics or this Spark cannot be used.
        FraudlakeError: Kafka cannot be reached, another process runs the lane, or the query failed.
    """
    log = checkpoint(settings, rules).with_suffix(".log")
    with (
        _exclusive(settings, rules),
        stop.handled(),
        session.started(settings, log) as own,
        stop.deferred(),
    ):
        backlog = topics.require(own.spark, settings, own.slots, session.state_partitions(settings))
        since = complete_since(settings, rules)
        query = writer(own, settings, rules, since, is_catching_up=True).trigger(**trigger(_FIRST_BATCH)).start()
        totals = Totals()
        started(len(backlog), since)
        is_new = True
        end = None if duration is None else time.monotonic() + duration.total_seconds()
        while query.isActive and not stop.is_requested() and (end is None or time.monotonic() < end):
            time.sleep(_LOOK_SECONDS)
            if totals.add(query):
                progress(totals)
                if is_new and totals.batches >= FIRST_BATCHES and _has_read(query, settings.topic, backlog):
                    is_new = False
                    query.stop()
                    query = writer(own, settings, rules, since).trigger(**trigger(settings.realtime_batch)).start()
        failure = query.exception()
        totals.add(query)
        if failure is not None:
            reason = client.explain(settings, settings.topic, "--topic", str(failure))
            raise FraudlakeError(f"realtime failed: {reason or cause_of(str(failure))}; details are in {own.log}")
        query.stop()
        return totals


def complete_since(settings: Settings, rules: LaneRules) -> datetime | None:
    """Return the time from which the state has all rows that the rules need; None: from the topic's first row on.

    A state that was written for other windows, or for fewer rows, counts as empty.
    """
    folder = checkpoint(settings, rules)
    file = folder.with_suffix(".json")
    window = None if rules.span is None else neighbours.window_of(rules.span)[0].total_seconds()
    needed = {"window": window, "rows": rules.rows(is_catching_up=False)}
    begun: float | None = datetime.now(UTC).timestamp()
    if not any(folder.glob("commits/*")):  # nothing was committed: the topic is read from the starting offsets
        begun = None if settings.starting_offsets == "earliest" else begun
    elif file.exists() and (before := json.loads(file.read_text())).items() >= needed.items():
        begun = before["since"]
    file.parent.mkdir(parents=True, exist_ok=True)
    json_file.write(file, needed | {"since": begun})
    return None if begun is None else datetime.fromtimestamp(begun, UTC)


def _has_read(query: StreamingQuery, topic: str, ends: dict[int, int]) -> bool:
    """Return whether a query has committed the messages before the offsets ``ends``.

    The last offsets may be markers of a producer's transactions, which are not messages. Then a batch reads nothing.
    """
    report = query.lastProgress
    assert report is not None  # there was a batch
    source = report.sources[0]
    # Before the first batch there is no offset, which Spark and Python express differently.
    texts = (text if text.startswith("{") else "{}" for text in (source.startOffset, source.endOffset))
    begins, offsets = (json.loads(text).get(topic, {}) for text in texts)
    read = {int(partition): offset for partition, offset in offsets.items() if offset != begins.get(partition)}
    return all(read.get(partition, end) >= end for partition, end in ends.items())


def writer(
    own: Session,
    settings: Settings,
    rules: LaneRules,
    since: datetime | None = None,
    *,
    is_catching_up: bool = False,
) -> DataStreamWriter:
    """Return the writer of the query; the caller sets its :func:`trigger` and starts it.

    ``since`` is what :func:`complete_since` returns.
    """
    if not settings.is_in_workspace:
        # To count a state's entries, Spark looks up each key once more per row. It is worth it only without an end:
        # otherwise the scan for expired entries counts them.
        own.spark.conf.set(session.COUNT_ENTRIES, str(rules.is_without_end).lower())
    rows = messages.read(own.spark, settings)
    return (
        alerts.events(rows, settings, rules, own.neighbours, since, is_catching_up=is_catching_up)
        .writeStream.format("kafka")
        .queryName("realtime")
        .outputMode("update")
        .options(**client.options(settings))
        .option("topic", settings.fast_alerts_topic)
        .option("checkpointLocation", str(checkpoint(settings, rules)))
    )


def trigger(batch: timedelta) -> dict[str, Any]:
    """Return Real-time Mode as a mapping: the types of Spark 4.2 do not know this trigger."""
    return {"realTime": f"{batch.total_seconds() * 1000:.0f} milliseconds"}


def _exclusive(settings: Settings, rules: LaneRules) -> AbstractContextManager[None]:
    """Let only one process run the lane; in a workspace, no lock works across clusters, so its job has only one run."""
    folder = checkpoint(settings, rules)
    return (
        nullcontext() if settings.is_in_workspace else lock.exclusive(folder.with_suffix(".lock"), "realtime", folder)
    )
