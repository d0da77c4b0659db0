"""Recent progress: a query's latest reports, which are read only when there is a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class RecentProgress:
    """Reads the recent reports of a stream's queries.

    Spark keeps up to a hundred. Reading 60 takes 45 ms, and the last one 0.4 ms (seen in 4.2): five times a second, all
    reports of one query take a quarter of a core.
    """

    def __init__(self) -> None:
        """Begin before the first report."""
        self._last: tuple[object, ...] | None = None

    def read(self, query: StreamingQuery) -> list[StreamingQueryProgress]:
        """Return the recent reports of a query, or none if its last report has not changed since the last call."""
        report = query.lastProgress
        last = None if report is None else (report.runId, report.batchId, report.timestamp)
        if last == self._last:
            return []
        self._last = last
        return list(query.recentProgress)
