from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fraudlake.lake.recent_progress import RecentProgress


def report(run: str, batch: int, second: int = 0) -> SimpleNamespace:
    """A report of a micro-batch, as far as it is told from others."""
    return SimpleNamespace(runId=run, batchId=batch, timestamp=f"2026-03-07T12:00:{second:02}.000Z")


@dataclass
class Query:
    """A streaming query that counts how often its recent reports are read."""

    reports: list[SimpleNamespace] = field(default_factory=list)
    reads: int = 0

    @property
    def lastProgress(self) -> SimpleNamespace | None:  # noqa: N802 - Spark's name
        return self.reports[-1] if self.reports else None

    @property
    def recentProgress(self) -> list[SimpleNamespace]:  # noqa: N802 - Spark's name
        self.reads += 1
        return self.reports


def test_recent_reports_are_read_once_for_each_last_one() -> None:
    query: Any = Query()
    progress = RecentProgress()
    assert progress.read(query) == [] and query.reads == 0

    query.reports += [report("a", 0), report("a", 1)]
    assert progress.read(query) == [report("a", 0), report("a", 1)]
    assert progress.read(query) == [] and query.reads == 1

    query.reports.append(report("a", 2))  # an idle report of the next micro-batch
    query.reports.append(report("a", 2, 10))
    assert len(progress.read(query)) == 4
    assert progress.read(query) == [] and query.reads == 2

    query.reports[:] = [report("b", 2, 10)]  # a query that was started again
    assert progress.read(query) == query.reports
