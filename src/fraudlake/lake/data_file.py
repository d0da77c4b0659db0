"""Data files: the files of a table according to its log, and the choice of those worth compacting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

_TIMES = 4
"""How much larger than the smaller ones together a file may be to be rewritten with them.

With each rewriting a row gets into a file that is a quarter larger or more, so it is rewritten a few times only.
"""


@dataclass(frozen=True)
class DataFile:
    """A file of a table's present version."""

    path: str
    """Its path in the table's folder."""
    size: int
    """Bytes."""
    millis: int
    """When it was written, in milliseconds since 1970 UTC."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """Value of each column that the table is partitioned by, as text."""

    @property
    def day(self) -> date | None:
        """Its ``date``, if the table is partitioned by it."""
        day = self.partition.get("date")
        return date.fromisoformat(day) if day is not None else None


def by_partition(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return the files of each partition."""
    groups: dict[tuple[str | None, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        groups[tuple(file.partition.values())].append(file)
    return [*groups.values()]


def small(files: Iterable[DataFile], size: int) -> list[DataFile]:
    """Return the files of one partition that are worth compacting into files of ``size`` bytes; none or several.

    A few small files next to large ones are compacted alone.
    """
    chosen: list[DataFile] = []
    total = 0
    for file in sorted(files, key=lambda file: file.size):
        if file.size > size // 4 or (chosen and file.size > _TIMES * total):
            break
        chosen.append(file)
        total += file.size
    return chosen if len(chosen) > 1 else []
