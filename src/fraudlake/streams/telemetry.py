"""Telemetry: publishes Spark's reports on micro-batches in the log, and as OpenMetrics at a loopback address.

The metrics have the late items of the review and the payments without a rate, too, which no micro-batch reports.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from fraudlake.errors import UsageError
from fraudlake.process import logs
from fraudlake.process.version import __version__
from fraudlake.rates import rate_table
from fraudlake.review import late

if TYPE_CHECKING:
    from collections.abc import Callable

    from fraudlake.lake import Lake
    from fraudlake.lake.store import Store

Figures = TypeVar("Figures")

_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""The limits of the histogram of durations."""
_FRESH = 60.0
"""Seconds for which a scraper gets the same counts of rows: to count them reads tables."""


class Observer(Protocol):
    """Receives the events of streams."""

    def started(self, step: str) -> None:
        """Note that a stream runs."""

    def batch(self, step: str, report: Any) -> None:
        """Note a micro-batch that had rows, from Spark's report on it."""

    def ended(self, step: str, failure: str | None = None) -> None:
        """Note that a stream has ended, and why it failed."""


def collect(lake: Lake) -> list[Observer]:
    """Return the observers of a lake's streams: the log, and the metrics if the settings name an address.

    Raises:
        UsageError: the address cannot be served.
    """
    address = lake.settings.metrics_address
    if not address:
        return [Records()]
    metrics = _served(address, lake.name)
    metrics.follow(lake.store)
    return [Records(), metrics]


class Records:
    """Writes events to the log."""

    def started(self, step: str) -> None:
        """Record that a stream runs."""
        logs.event("stream started", stream=step)

    def batch(self, step: str, report: Any) -> None:
        """Record a micro-batch with its rows and seconds."""
        seconds = report.batchDuration / 1000
        logs.event("micro-batch", stream=step, batch=report.batchId, rows=report.numInputRows, seconds=seconds)

    def ended(self, step: str, failure: str | None = None) -> None:
        """Record that a stream has ended."""
        if failure is None:
            logs.event("stream ended", stream=step)
        else:
            logs.event("stream failed", logging.ERROR, stream=step, cause=failure)


class Metrics:
    """Metrics for a scraper, such as Prometheus."""

    def __init__(self, lake: str) -> None:
        """Register the metrics."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

        self.registry = registry = CollectorRegistry()
        Info("fraudlake", "The program that runs the streams.", registry=registry).info(
            {"version": __version__, "lake": lake, "run": logs.RUN}
        )

        def of_stream(kind: Any, name: str, meaning: str, **options: Any) -> Any:
            return kind(f"fraudlake_stream_{name}", meaning, ["stream"], registry=registry, **options)

        self._running = of_stream(Gauge, "running", "1 while the stream runs, otherwise 0.")
        self._rows = of_stream(Counter, "rows", "Rows that it has read; files of ingest.")
        self._batches = of_stream(Counter, "batches", "Micro-batches that had rows.")
        self._failures = of_stream(Counter, "failures", "Failures that ended it.")
        self._seconds = of_stream(
            Histogram, "batch_duration_seconds", "Duration of its micro-batches.", buckets=_SECONDS
        )
        self._batch = of_stream(Gauge, "batch", "Number of its latest micro-batch.")
        self._began = of_stream(Gauge, "batch_began_timestamp_seconds", "When its latest micro-batch began.")
        self._watermark = of_stream(Gauge, "watermark_timestamp_seconds", "Its watermark in event time.")
        self._state = of_stream(Gauge, "state_rows", "Rows of its state.")
        self._lag = of_stream(Gauge, "lag_messages", "Messages of Kafka that it had still to read.")
        self._bytes = of_stream(Gauge, "lag_bytes", "Bytes of Delta tables that it had still to read.")
        self._late = Gauge("fraudlake_review_late_items", "Items open for longer than review_limit.", registry=registry)
        self._oldest = Gauge(
            "fraudlake_review_oldest_late_item_seconds",
            "Age of the oldest of them, from when its queue was built; 0 if there is none.",
            registry=registry,
        )
        self._without_rate = Gauge(
            "fraudlake_transactions_without_rate",
            "Transactions of silver whose currency has no rate.",
            registry=registry,
        )

    def follow(self, store: Store) -> None:
        """Count the late items of a lake's review, and its payments without a rate, whenever a scraper asks."""
        review = _Counted("late items", partial(late.count, store))
        self._late.set_function(lambda: review.figure(lambda counts: counts.items))
        self._oldest.set_function(lambda: review.figure(_oldest_seconds))
        missing = _Counted("payments without a rate", partial(rate_table.count_missing, store))
        self._without_rate.set_function(lambda: missing.figure(lambda counts: counts.without_rate))

    def started(self, step: str) -> None:
        """Mark a stream as running."""
        self._running.labels(step).set(1)

    def batch(self, step: str, report: Any) -> None:
        """Count a micro-batch."""
        self._rows.labels(step).inc(report.numInputRows)
        self._batches.labels(step).inc()
        self._seconds.labels(step).observe(report.batchDuration / 1000)
        self._batch.labels(step).set(report.batchId)
        self._began.labels(step).set(_seconds(report.timestamp))
        watermark = (report.eventTime or {}).get("watermark")
        if watermark:
            self._watermark.labels(step).set(_seconds(watermark))
        if report.stateOperators:
            self._state.labels(step).set(sum(operator.numRowsTotal for operator in report.stateOperators))
        for gauge, name in ((self._lag, "maxOffsetsBehindLatest"), (self._bytes, "numBytesOutstanding")):
            values = [source.metrics[name] for source in report.sources if name in (source.metrics or {})]
            if values:
                gauge.labels(step).set(sum(map(float, values)))

    def ended(self, step: str, failure: str | None = None) -> None:
        """Mark a stream as ended, and count its failure."""
        self._running.labels(step).set(0)
        if failure is not None:
            self._failures.labels(step).inc()


class _Counted(Generic[Figures]):
    """What is counted in the tables of a lake, again after :data:`_FRESH` seconds."""

    def __init__(self, name: str, count: Callable[[], Figures]) -> None:
        self._name = name
        self._count = count
        self._lock = threading.Lock()
        self._figures: Figures | None = None
        self._until = -math.inf

    def figure(self, of: Callable[[Figures], float]) -> float:
        """Return a figure of what was counted; NaN if counting failed."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._figures = self._counted()
                self._until = time.monotonic() + _FRESH
            return math.nan if self._figures is None else of(self._figures)

    def _counted(self) -> Figures | None:
        try:
            return self._count()
        except Exception as error:  # the metrics of streams are worth more than these
            logs.event(f"{self._name} not counted", logging.WARNING, cause=str(error))
            return None


def _oldest_seconds(counts: late.Late) -> float:
    """Return the age of the oldest late item in seconds; 0 if there is none."""
    return (datetime.now(UTC) - counts.oldest_at).total_seconds() if counts.oldest_at else 0.0


@cache
def _served(address: str, lake: str) -> Metrics:
    """Serve metrics at an address until the process ends."""
    try:
        from prometheus_client import start_http_server
    except ModuleNotFoundError:
        raise UsageError("metrics_address: prometheus-client is not installed: pip install prometheus-client") from None
    metrics = Metrics(lake)
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host.strip("[]"), metrics.registry)
    except OSError as error:
        raise UsageError(f"metrics_address {address}: {error.strerror}: name another port") from None
    return metrics


def _seconds(text: str) -> float:
    """Return the seconds since 1970 of a time that Spark has written."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
