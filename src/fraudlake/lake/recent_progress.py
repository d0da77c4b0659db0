"""Recent progress: a query's latest reports, which are read only when there is a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class RecentProgress:
    """Reads the recent reports of a stream's queries.

    Spark keeps a hundred reports, which take two hundred times as long to read as the last one: 75 ms, so that looking
    five times a second takes a third of a core (seen in 4.2).
    """

    def __init__(self) -> None:
        """Begin before the first report."""
        self._last: tuple[str, int, str] | None = None

    def read(self, query: StreamingQuery) -> list[StreamingQueryProgress]:
        """Return the recent reports of a query, or none if its last report has not changed since the last call."""
        report = query.lastProgress
        last = None if report is None else (str(report.runId), report.batchId, report.timestamp)
        if last == self._last:
            return []
        self._last = last
        return list(query.recentProgress)
