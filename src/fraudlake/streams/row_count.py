"""Row count: counts a query's rows and micro-batches from its progress or, if that has none, from commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fraudlake.lake.commit import new_rows
from fraudlake.lake.recent_progress import RecentProgress
from fraudlake.lake.store import Snapshot

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


class RowCount:
    """Counts a query's rows and micro-batches from its recent progress or, if that lacks some, from commits.

    Serverless compute reports 0 as ``numInputRows`` of each micro-batch of a ``foreachBatch``. So does Spark if a
    micro-batch did not read the rows that it was given.
    """

    def __init__(self, lake: Lake, step: str, reads: Sequence[Table], count_rows: Callable[[int], int] | None) -> None:
        """Count from the checkpoint of a stream that has not started.

        Args:
            lake: the lake.
            step: the stream's step.
            reads: the tables that the stream reads.
            count_rows: counts the rows of its micro-batches from a number on; None if the commits of the tables do.
        """
        self.rows = self.batches = 0
        self._last_batch = -1
        self._progress = RecentProgress()
        self._lake = lake
        self._step = step
        self._reads = reads
        self._count_rows = count_rows
        self._first, self._unread = self._position()

    def _position(self) -> tuple[int, dict[str, int]]:
        """Return the number of the next micro-batch, and the first unread version by the id of each table."""
        checkpoint = self._lake.checkpoint(self._step)
        return checkpoint.next_batch, checkpoint.unread_versions()

    def update(self, query: StreamingQuery) -> list[Any]:
        """Add the query's new reports on micro-batches that had rows, and return them."""
        new = []
        for report in self._progress.read(query):
            # Over Spark Connect ``report["numInputRows"]`` is None, the attribute is not (seen in PySpark 4.2).
            if report.batchId > self._last_batch and report.numInputRows > 0:
                self._last_batch = report.batchId
                self.rows += report.numInputRows
                self.batches += 1
                new.append(report)
        return new

    def complete(self) -> None:
        """Count from commits if the query, which has ended, has not reported the rows of every micro-batch."""
        batch, unread = self._position()
        if self.batches == batch - self._first:
            return
        if self._count_rows:
            rows = self._count_rows(self._first)
        else:
            ids = self._lake.checkpoint(self._step).notes.reads
            read = [(table, ids[table.name]) for table in self._reads if ids[table.name] in unread]
            rows = sum(self._rows_of(table, self._unread.get(id_), unread[id_]) for table, id_ in read)
        # A micro-batch that only moves the watermark has no rows, and is not counted.
        if rows > self.rows:
            self.rows, self.batches = rows, batch - self._first

    def _rows_of(self, table: Table, begin: int | None, end: int) -> int:
        """Return how many rows of a table a stream reads from version ``begin``, or the first, to before ``end``."""
        if begin is None:
            return self._lake.store.count(Snapshot(table, end - 1))
        commits = new_rows(self._lake.store.history(table), begin)
        return sum(commit.rows or 0 for commit in commits if commit.version < end)
