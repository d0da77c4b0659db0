from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fraudlake.lake.recent_progress import RecentProgress


@dataclass(frozen=True)
class Report:
    runId: str  # noqa: N815 - Spark's name
    batchId: int  # noqa: N815 - Spark's name
    timestamp: str = "2026-03-07T12:00:00.000Z"


@dataclass
class Query:
    """A streaming query that counts how often its recent reports are read."""

    reports: list[Report] = field(default_factory=list)
    reads: int = 0

    @property
    def lastProgress(self) -> Report | None:  # noqa: N802 - Spark's name
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[Report]:  # noqa: N802 - Spark's name
        self.reads += 1
        return self.reports


def test_recent_reports_are_read_once_for_each_last_one() -> None:
    query: Any = Query()
    progress = RecentProgress()
    assert progress.read(query) == [] and query.reads == 0

    query.reports += [Report("a", 0), Report("a", 1)]
    assert progress.read(query) == [Report("a", 0), Report("a", 1)]
    assert progress.read(query) == [] and query.reads == 1

    query.reports.append(Report("a", 2))  # an idle report of the next micro-batch
    query.reports.append(Report("a", 2, "2026-03-07T12:00:10.000Z"))
    assert len(progress.read(query)) == 4
    assert progress.read(query) == [] and query.reads == 2

    query.reports[:] = [Report("b", 2, "2026-03-07T12:00:10.000Z")]  # a query that was started again
    assert progress.read(query) == query.reports
