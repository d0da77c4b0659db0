"""Streams: runs streaming queries to their end or until stopped, one process a checkpoint, and reports progress."""

from __future__ import annotations

import contextlib
import math
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError, cause_of
from fraudlake.lake import Lake
from fraudlake.lake.commit import new_rows
from fraudlake.lake.rows import persisted_batch
from fraudlake.process import logs, stop
from fraudlake.streams import telemetry
from fraudlake.streams.row_count import RowCount
from fraudlake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Write = Callable[[Lake, "DataFrame", int], None]
"""Called with the lake in the micro-batch's session, the micro-batch's rows and its number."""
Rows = Callable[[], "DataFrame"]
Hook = Callable[[], None]
_LOOK_SECONDS = 0.2
Progress = Callable[[str, int, int], None]
"""Called with a step's name, the rows read so far and the micro-batches done so far."""


@dataclass(frozen=True)
class Stream:
    """One streaming query: ``rows``, a streaming DataFrame, are handed to ``write`` micro-batch by micro-batch.

    ``rows`` is called only if there are rows to read, so Spark need not start for tables without new rows.
    ``explain`` turns Spark's message of a failure into one line for the user, or returns None. ``before`` is called
    once this process holds the step's lock, before the first micro-batch; ``after`` is called after the last one.
    """

    step: str
    rows: Rows
    write: Write
    reads: tuple[Table, ...] = ()
    """Tables that the stream reads; it refuses to continue if one was replaced by another table of the same name."""
    writes: Mapping[Table, str] = field(default_factory=dict)
    """SQL conditions, by table, on rows that only this stream can have written; ``true`` means all. If there
    are such rows, a new checkpoint is refused."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Settings that the state depends on; they cannot change once the stream has begun."""
    persist: bool = True
    """Whether a micro-batch's rows are persisted before ``write``; not needed if it uses them once or persists them
    itself."""
    waits: bool = False
    """Whether rows wait in the state for the watermark, so that the stream must run even without new rows."""
    explain: Callable[[str], str | None] = lambda failure: None
    before: Hook = lambda: None
    after: Hook = lambda: None
    count_rows: Callable[[int], int] | None = None
    """Returns how many rows it has read from a micro-batch on; not needed if it reads all rows of its tables."""
    renewed: Callable[[], Stream] | None = None
    """Returns the corrected stream after a micro-batch raised :class:`OutdatedError`."""


class OutdatedError(Exception):
    """Raised by a micro-batch that has written nothing: the stream must be rebuilt, and repeat it."""


@dataclass(frozen=True)
class Done:
    """Result of a stream: the number of rows read from its source, and of micro-batches with rows."""

    step: str
    rows: int
    batches: int


def independent(streams: Iterable[Stream]) -> list[list[Stream]]:
    """Return streams in groups, in their order; no stream of a group reads a table that another one of it writes."""
    groups: list[list[Stream]] = []
    for stream in streams:
        read = {table.name for table in stream.reads}
        if groups and not any(read & {table.name for table in other.writes} for other in groups[-1]):
            groups[-1].append(stream)
        else:
            groups.append([stream])
    return groups


def run(
    lake: Lake, streams: list[Stream], trigger: str, progress: Progress = lambda step, rows, batches: None
) -> list[Done]:
    """Run streams together: over the available rows (``available-now``), or until stopped (``continuous``).

    SIGINT and SIGTERM end them after the micro-batches that are in progress.

    Raises:
        FraudlakeError: a stream failed, or another process is running it.
        StoppedError: a signal ended streams that would have ended by themselves.
    """
    with contextlib.ExitStack() as locks, stop.handled():
        stop.check()
        for stream in streams:
            locks.enter_context(lake.exclusive(stream.step))
        for stream in streams:
            _require_checkpoint(lake, stream)
            stream.before()
        queries = _Queries(lake, streams, trigger, progress)
        with stop.deferred(), stop.failing():
            failures = queries.run()
        queries.report_end(failures)
        for stream in streams:
            _raise_failure(lake, stream, failures.get(stream.step))
        if trigger != "continuous":
            stop.check()
        for stream in streams:
            stream.after()
        return queries.done()


class _Queries:
    """The streaming queries of one run, of those streams that have rows to read."""

    def __init__(self, lake: Lake, streams: list[Stream], trigger: str, progress: Progress) -> None:
        self._lake = lake
        self._streams = streams
        self._trigger = trigger
        self._progress = progress
        is_endless = trigger == "continuous"
        self._unread = {stream.step: math.inf if is_endless else _unread_rows(lake, stream) for stream in streams}
        self._working = [stream for stream in streams if stream.waits or self._unread[stream.step]]
        self._counts = {stream.step: RowCount(lake, stream.step, stream.reads, stream.count_rows) for stream in streams}
        self._observers = telemetry.collect(lake) if self._working else []
        self._queries: dict[str, StreamingQuery] = {}

    def run(self) -> dict[str, Exception | None]:
        """Run until all have ended, one has failed or a signal has come; return each one's failure, by step."""
        failures: dict[str, Exception | None] = {}
        try:
            self._start_all()
            while not stop.is_requested():
                time.sleep(_LOOK_SECONDS)
                self._count()
                if self._are_over():
                    break
            if stop.is_requested():
                _await_commits(self._lake, self._queries)
            else:
                # Stopping a query below may make it fail; it repeats its micro-batch next time.
                failures = {step: query.exception() for step, query in self._queries.items()}
        finally:
            for query in self._queries.values():
                query.stop()
        self._count()
        return failures

    def report_end(self, failures: Mapping[str, Exception | None]) -> None:
        """Tell the observers that the queries have ended."""
        for step in self._queries:
            failure = failures.get(step)
            for observer in self._observers:
                observer.ended(step, None if failure is None else cause_of(str(failure)))

    def done(self) -> list[Done]:
        """Return the results of all streams, those without a query, too."""
        for step in self._queries:
            self._counts[step].complete()
        return [Done(step, count.rows, count.batches) for step, count in self._counts.items()]

    def _start_all(self) -> None:
        for stream in self._working:
            self._start(stream)
            for observer in self._observers:
                observer.started(stream.step)

    def _start(self, stream: Stream) -> None:
        with self._lake.planning_for(self._unread[stream.step]):
            self._queries[stream.step] = _start(self._lake, stream, self._trigger)

    def _are_over(self) -> bool:
        """Start outdated streams again, and return whether all queries have ended, or one has failed."""
        ended = {step: query.exception() for step, query in self._queries.items() if not query.isActive}
        for stream in self._streams:
            if stream.renewed and _is_outdated(ended.get(stream.step)):
                self._start(stream.renewed())
                del ended[stream.step]
        return len(ended) == len(self._queries) or any(ended.values())

    def _count(self) -> None:
        for step, query in self._queries.items():
            if new := self._counts[step].update(query):
                self._progress(step, self._counts[step].rows, self._counts[step].batches)
            for observer in self._observers:
                for report in new:
                    observer.batch(step, report)


def _raise_failure(lake: Lake, stream: Stream, failure: Exception | None) -> None:
    # A stream that was stopped while it was outdated repeats its micro-batch next time.
    if failure is not None and not (stream.renewed and _is_outdated(failure)):
        cause = stream.explain(str(failure)) or cause_of(str(failure))
        raise FraudlakeError(f"{stream.step} failed: {cause}; details are in {lake.log}") from failure


def advice(failure: str, kind: str, names: Collection[str], remedy: str) -> str | None:
    """Return the remedy for a failure in a micro-batch that begins with new rules or features.

    Args:
        failure: Spark's message.
        kind: a rule or a feature.
        names: the new ones; None is returned if there are none.
        remedy: the command that takes one of them back.
    """
    if not names:
        return None
    return (
        f"{cause_of(failure)}: this micro-batch is the first one with {', '.join(names)}; if a {kind} is the cause, "
        f"{remedy} takes it back, and the next run goes on from here"
    )


def _await_commits(lake: Lake, queries: Mapping[str, StreamingQuery]) -> None:
    """Wait until the micro-batches that are in progress are committed, or their queries have ended."""
    under_way = {step: lake.checkpoint(step).pending_batch() for step in queries}
    while any(
        query.isActive and under_way[step] is not None and lake.checkpoint(step).pending_batch() == under_way[step]
        for step, query in queries.items()
    ):
        time.sleep(_LOOK_SECONDS)


def _is_outdated(failure: Exception | None) -> bool:
    """Tell whether a micro-batch has raised :class:`OutdatedError`, whose name is in Spark's message."""
    return OutdatedError.__name__ in str(failure)


def _require_checkpoint(lake: Lake, stream: Stream) -> None:
    checkpoint = lake.checkpoint(stream.step)
    if stream.fixed:
        lake.record_definition()
    has_output = {
        table.name: checkpoint.is_new and lake.store.has_rows(table, condition)
        for table, condition in stream.writes.items()
    }
    checkpoint.require(stream.fixed, {table.name: lake.store.identity(table) for table in stream.reads}, has_output)
    checkpoint.remove_remains()
    checkpoint.correct_paths()


def _unread_rows(lake: Lake, stream: Stream) -> float:
    """Return how many rows a stream has to read, infinite if unknown: starting a query without rows takes seconds."""
    checkpoint = lake.checkpoint(stream.step)
    if not stream.reads or checkpoint.is_new or checkpoint.pending_batch() is not None:
        return math.inf
    ids = checkpoint.notes.reads
    unread = checkpoint.unread_versions()
    rows: float = 0
    for table in stream.reads:
        version = unread.get(ids[table.name])
        history = lake.store.history(table)
        # Delta may have removed unread commits from the log.
        if version is None or version < min(commit.version for commit in history):
            return math.inf
        rows += sum(commit.rows or math.inf for commit in new_rows(history, version))
    return rows


def _start(lake: Lake, stream: Stream, trigger: str) -> StreamingQuery:
    writer = (
        stream.rows()
        .writeStream.queryName(f"{stream.step}-{uuid.uuid4().hex[:8]}")
        .option("checkpointLocation", str(lake.checkpoint(stream.step).folder))
        .foreachBatch(micro_batch(lake, stream))
    )
    if trigger == "continuous":
        interval = lake.settings.interval.total_seconds()
        return writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def micro_batch(lake: Lake, stream: Stream) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with each micro-batch; it runs ``write`` in the micro-batch's session.

    If a stateful stream repeats a micro-batch after a crash, its rows are computed even if they were written before:
    Spark refuses a micro-batch whose stateful step has not run (STATE_STORE_COMMIT_VALIDATION_FAILED, seen in 4.2).
    After a signal no further micro-batch begins, since stopping a query waits for the micro-batch that Python runs.
    A ``BaseException`` that is not an ``Exception``, such as a panic of delta-rs, is raised as a ``RuntimeError``:
    otherwise Spark does not notice it and waits forever.
    """
    step_write = _persisting(stream.write) if stream.persist else stream.write
    # Persisting a micro-batch counts its rows anyway.
    repeated = lake.checkpoint(stream.step).pending_batch() if stream.fixed and not stream.persist else None
    step = stream.step  # the stream has DataFrames, which cannot be pickled

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            if stop.is_requested():
                raise RuntimeError("stopped before it began")
            if batch_id == repeated:
                batch.count()
            with logs.inside(stream=step, batch=batch_id):
                step_write(lake.in_session(batch.sparkSession), batch, batch_id)
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return write


def _persisting(step_write: Write) -> Write:
    """Persist a micro-batch while it is written; otherwise a stateful step runs again for each table that it writes."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        with persisted_batch(batch) as require_again:
            count = batch.count()
            require_again(count)
            if count:
                step_write(lake, batch, batch_id)

    return write
