"""Streams: runs streaming queries to their end or until stopped, one process a checkpoint, and reports progress."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake, conflict
from fraudlake.lake.commit import new_rows
from fraudlake.lake.lake import Compute
from fraudlake.lake.rows import has_rows, persisted_count
from fraudlake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Write = Callable[[Lake, "DataFrame", int], None]
"""Called with the lake in the micro-batch's session, the micro-batch's rows and its number."""
Hook = Callable[[], None]
Progress = Callable[[str, int, int], None]
"""Called with a step's name, the rows read so far and the micro-batches done so far."""


@dataclass(frozen=True)
class Stream:
    """One streaming query: ``rows``, a streaming DataFrame, are handed to ``write`` micro-batch by micro-batch.

    ``explain`` turns Spark's message of a failure into one line for the user, or returns None. ``before`` is called
    once this process holds the step's lock, before the first micro-batch; ``after`` is called after the last one.
    """

    step: str
    rows: DataFrame
    write: Write
    reads: tuple[Table, ...] = ()
    """Tables that the stream reads; it refuses to go on where one was replaced by another table of the same name."""
    writes: Mapping[str, DataFrame] = field(default_factory=dict)
    """Rows that only this stream can have written, by table; where there are any, a new checkpoint is refused."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Settings that the state depends on; they cannot change once the stream has begun."""
    persist: bool = True
    """Whether a micro-batch's rows are persisted before ``write``; not needed where it uses them once or persists
    them itself."""
    waits: bool = False
    """Whether rows wait in the state for the watermark, which can pass them without new rows."""
    explain: Callable[[str], str | None] = lambda failure: None
    before: Hook = lambda: None
    after: Hook = lambda: None
    renewed: Callable[[], Stream] | None = None
    """Returns the stream as it should be, where a micro-batch raised :class:`OutdatedError`."""


class OutdatedError(Exception):
    """Raised by a micro-batch that has written nothing: the stream must be rebuilt, and repeat it."""


@dataclass(frozen=True)
class Done:
    """What a stream did: rows read from its source, and micro-batches that had any."""

    step: str
    rows: int
    batches: int


@dataclass(frozen=True)
class Appender:
    """Appends micro-batches to tables exactly once.

    Delta records an application and a version with each commit (``txnAppId``, ``txnVersion``), so a micro-batch that is
    repeated after a crash adds nothing (Delta Lake documentation, "Idempotent table writes in foreachBatch"). The
    application is the checkpoint's id: a new checkpoint has a new id, and counts its micro-batches from 0 again.
    """

    application: str

    @classmethod
    def of(cls, lake: Lake, step: str) -> Appender:
        """Return the appender of a step's stream."""
        return cls(lake.checkpoint(step).id)

    def append(
        self,
        lake: Lake,
        rows: DataFrame,
        table: Table,
        batch_id: int,
        compute: Compute | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append a micro-batch's rows to a table, once.

        Args:
            lake: the lake, in the session of the rows.
            rows: the rows, with the table's columns or those that ``compute`` reads.
            table: the table to append to.
            batch_id: the micro-batch's number.
            compute: turns Arrow batches of the rows into batches of the table's schema, in Spark's tasks.
            metadata: a text that the commit carries.
        """
        chosen = rows if compute else rows.select(*lake.table(table).column_names)
        transaction = (self.application, batch_id)
        conflict.retried(lambda: lake.append(chosen, table, transaction, compute, metadata))


def run(
    lake: Lake, streams: list[Stream], trigger: str, progress: Progress = lambda step, rows, batches: None
) -> list[Done]:
    """Run streams together: over the available rows (``available-now``), or until stopped (``continuous``).

    SIGINT and SIGTERM end them; the next run repeats a micro-batch that was under way.

    Raises:
        FraudlakeError: a stream failed, or another process is running it.
    """
    with contextlib.ExitStack() as locks, stop_signal() as stop:
        for stream in streams:
            locks.enter_context(lake.exclusive(stream.step))
        for stream in streams:
            _require_checkpoint(lake, stream)
            stream.before()
        queries = {
            stream.step: _start(lake, stream, trigger)
            for stream in streams
            if trigger == "continuous" or _has_work(lake, stream)
        }
        counts = {stream.step: _Count() for stream in streams}
        try:
            while not stop.wait(0.2):
                for step, query in queries.items():
                    if counts[step].update(query):
                        progress(step, counts[step].rows, counts[step].batches)
                ended = {step: query.exception() for step, query in queries.items() if not query.isActive}
                for step in [step for step, failure in ended.items() if OutdatedError.__name__ in str(failure)]:
                    queries[step] = _start(lake, _renewed(streams, step), trigger)
                    del ended[step]
                if len(ended) == len(queries) or any(ended.values()):
                    break
            # A query that is stopped below may fail by that, and repeats its micro-batch next time.
            failures = {step: query.exception() for step, query in queries.items()}
        finally:
            for query in queries.values():
                query.stop()
        for step, query in queries.items():
            counts[step].update(query)
            failure = failures[step]
            # A stream that was stopped while it was outdated repeats its micro-batch next time.
            if failure is not None and OutdatedError.__name__ not in str(failure):
                explain = next(stream.explain for stream in streams if stream.step == step)
                cause = explain(str(failure)) or cause_of(str(failure))
                raise FraudlakeError(f"{step} failed: {cause}; details are in {lake.log}") from failure
        for stream in streams:
            stream.after()
    return [Done(step, count.rows, count.batches) for step, count in counts.items()]


def _renewed(streams: list[Stream], step: str) -> Stream:
    """Return the stream of a step that is outdated, rebuilt."""
    renewed = next(stream.renewed for stream in streams if stream.step == step)
    if renewed is None:
        raise FraudlakeError(f"{step} is outdated, and cannot be rebuilt")
    return renewed()


def _require_checkpoint(lake: Lake, stream: Stream) -> None:
    checkpoint = lake.checkpoint(stream.step)
    if stream.fixed:
        lake.record_definition()
    has_output = {name: checkpoint.is_new and has_rows(rows) for name, rows in stream.writes.items()}
    checkpoint.require(stream.fixed, {table.name: lake.identity(table) for table in stream.reads}, has_output)
    checkpoint.remove_remains()
    checkpoint.settle()


def _has_work(lake: Lake, stream: Stream) -> bool:
    """Tell whether a stream of tables may have rows to read: to start a query for none takes seconds."""
    checkpoint = lake.checkpoint(stream.step)
    if stream.waits or not stream.reads or checkpoint.is_new or checkpoint.pending_batch() is not None:
        return True
    ids, unread = checkpoint.reads, checkpoint.unread_versions()
    for table in stream.reads:
        version, history = unread.get(ids[table.name]), lake.history(table)
        # The log may be cleaned up beyond what the stream has read.
        if version is None or version < min(commit.version for commit in history) or new_rows(history, version):
            return True
    return False


def _start(lake: Lake, stream: Stream, trigger: str) -> StreamingQuery:
    writer = (
        stream.rows.writeStream.queryName(f"{stream.step}-{uuid.uuid4().hex[:8]}")
        .option("checkpointLocation", str(lake.checkpoint(stream.step).folder))
        .foreachBatch(micro_batch(lake, stream))
    )
    if trigger == "continuous":
        interval = lake.settings.interval.total_seconds()
        return writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds").start()
    return writer.trigger(availableNow=True).start()


def micro_batch(lake: Lake, stream: Stream) -> Callable[[DataFrame, int], None]:
    """Return the function that Spark calls with each micro-batch; it runs ``write`` in the micro-batch's session.

    Where a stateful stream repeats a micro-batch after a crash, its rows are computed even if they were written before:
    Spark refuses a micro-batch whose stateful step has not run (STATE_STORE_COMMIT_VALIDATION_FAILED, seen in 4.2).
    A ``BaseException`` that is no ``Exception``, such as a panic of delta-rs, is raised as a ``RuntimeError``: Spark
    does not notice the former and waits forever.
    """
    step_write = _persisting(stream.write) if stream.persist else stream.write
    repeated = lake.checkpoint(stream.step).pending_batch() if stream.fixed else None

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            if batch_id == repeated:
                batch.count()
            step_write(lake.within(batch.sparkSession), batch, batch_id)
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return write


def _persisting(step_write: Write) -> Write:
    """Persist a micro-batch while it is written; otherwise a stateful step runs again for each table that it writes."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        with persisted_count(batch) as count:
            if count or (count is None and has_rows(batch)):
                step_write(lake, batch, batch_id)

    return write


class _Count:
    """Counts a query's rows and micro-batches from its recent progress."""

    def __init__(self) -> None:
        self.rows = self.batches = 0
        self._seen = -1

    def update(self, query: StreamingQuery) -> bool:
        """Add what the query has reported since; return whether there were new micro-batches."""
        before = self.batches
        for report in query.recentProgress:
            # Over Spark Connect ``report["numInputRows"]`` is None, the attribute is not (seen in PySpark 4.2).
            if report.batchId > self._seen and report.numInputRows > 0:
                self._seen = report.batchId
                self.rows += report.numInputRows
                self.batches += 1
        return self.batches > before


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event; only the main thread can handle signals."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def set_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {number: signal.signal(number, set_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


_CAUSE = re.compile(r"(Error|Exception)(: |$)")


def cause_of(message: str) -> str:
    """Return the line of a message that names the innermost cause, without class names and stack frames."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("at ", "File ", "...", "===", "JVM stacktrace"))]
    causes = [line for line in messages if _CAUSE.search(line) and not line.endswith("(most recent call last):")]
    # Spark's plan of the query follows its own first line.
    line = causes[-1] if causes else messages[0].rpartition("terminated with exception: ")[2] if messages else ""
    return line.removeprefix("Caused by: ").removeprefix("fraudlake.errors.FraudlakeError: ")[:500] or "no reason given"
