"""Clustering: chooses the files of a table that are worth rewriting, given those that were clustered before.

The work is proportional to the changes. A day's new files are small, and are compacted without its clustered files.
Clustering rewrites a whole day, so a day is clustered once it is complete or has grown by a share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from fraudlake.lake.commit import Commit
from fraudlake.lake.data_file import DataFile, by_partition, small
from fraudlake.settings import Settings


@dataclass(frozen=True)
class Clustered:
    """When each day of a table was last clustered, in milliseconds since 1970 UTC; -1 if it was not."""

    days: dict[str, int]
    others: int

    @classmethod
    def of(cls, history: list[Commit]) -> Clustered:
        """Read a table's history.

        Delta removes old commits. If a later commit has clustered the table, files older than the log count as
        clustered. A restore may bring back files from before a clustering, so only clusterings after it count.
        """
        restored = max((commit.version for commit in history if commit.operation == "RESTORE"), default=-1)
        clustering = [commit for commit in history if commit.is_clustered and commit.version > restored]
        oldest = min(history, key=lambda commit: commit.version, default=None)
        days = {day: commit.millis for commit in reversed(clustering) for day in commit.days}
        whole = [commit.millis for commit in clustering if not commit.days]
        if clustering and oldest is not None and oldest.version > 0:
            whole.append(oldest.millis)
        return cls(days, max(whole, default=-1))

    def millis(self, file: DataFile) -> int:
        """Return when the day of a file was last clustered."""
        return max(self.days.get(str(file.day or "NULL"), -1), self.others)


@dataclass(frozen=True)
class Clustering:
    """How a table is to be clustered.

    Args:
        size: approximate size of its files, in bytes.
        growth: share by which a day must grow to be clustered again.
        lateness: how long rows of a day may come after its end.
    """

    size: int
    growth: float
    lateness: timedelta

    @classmethod
    def of(cls, settings: Settings, size: int) -> Clustering:
        """Return the clustering that the settings give a table with files of a size."""
        return cls(size, settings.cluster_growth, settings.max_out_of_orderness)

    def due(self, files: Iterable[DataFile], clustered: Clustered, now: datetime) -> list[list[DataFile]]:
        """Return the files of each partition that is due to be clustered."""
        partitions = by_partition(files)
        newest = max((file.day for group in partitions for file in group if file.day), default=None)
        return [group for group in partitions if self._is_due(group, clustered, newest, now)]

    def _is_due(self, group: list[DataFile], clustered: Clustered, newest: date | None, now: datetime) -> bool:
        last = clustered.millis(group[0])
        day = group[0].day
        new = sum(file.size for file in group if file.millis > last)
        total = sum(file.size for file in group)
        if not new or total <= self.size:
            # Data skipping gains nothing within a single file.
            return False
        return new >= self.growth * (total - new) or self._is_complete_since(last, day, newest, now)

    def _is_complete_since(self, last: int, day: date | None, newest: date | None, now: datetime) -> bool:
        """Return whether a day has become complete since it was last clustered: a later day has rows."""
        if day is None or newest is None or day >= newest:
            return False
        end = datetime.combine(day, time(), UTC) + timedelta(days=1) + self.lateness
        return last < end.timestamp() * 1000 and end <= now


def compactable(files: Iterable[DataFile], clustered: Clustered, size: int) -> list[DataFile]:
    """Return the files that are worth compacting within their partitions; clustered files are left alone."""
    new = [file for file in files if file.millis > clustered.millis(file)]
    return [file for group in by_partition(new) for file in small(group, size)]


def portions(groups: list[list[DataFile]], size: float) -> list[list[DataFile]]:
    """Join groups of files to lists of about ``size`` bytes; no group is divided."""
    divided: list[list[DataFile]] = []
    filled = size
    for group in groups:
        if filled >= size:
            divided.append([])
            filled = 0
        divided[-1] += group
        filled += sum(file.size for file in group)
    return divided
