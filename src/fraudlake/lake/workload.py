"""Workload: estimates how many rows streams have to read, from landed files, bronze's commits and checkpoints."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.gold import gold_tables
from fraudlake.gold.aggregate import by_sources

if TYPE_CHECKING:
    from fraudlake.gold.aggregate import GroupAggregate
    from fraudlake.lake.lake import Lake

_NEVER = datetime.min.replace(tzinfo=UTC)
_ROW_BYTES = 20
"""Approximate bytes of a row with Flink's four fields in a parquet file."""
_BRIEF = 1_000_000
_BRIEF_STEPS = {"detect": 5_000_000, "aggregate": 4_000_000, "score": 4_000_000}
"""Rows up to which Java's second compiler does not pay off; the limit of other steps is :data:`_BRIEF`.

Processor time without and with it: `refine` 35 and 43 s for 1,000,000 rows, 55 and 50 s for 3,000,000; for as many,
`detect` 20 and 35 s, `aggregate` 41 and 53 s, `score` 58 and 75 s.
"""


def is_brief(lake: Lake, steps: Collection[str]) -> bool:
    """Return whether the streams of some steps have too few rows to read for Java's second compiler to pay off."""
    limit = min((_BRIEF_STEPS.get(step, _BRIEF) for step in steps), default=_BRIEF)
    return unread_rows(lake, steps) <= limit


def unread_rows(lake: Lake, steps: Collection[str]) -> float:
    """Estimate how many rows the streams of some steps have to read, without Spark; infinite if that is unknown.

    A stream counts as having read all rows that were in bronze when its latest micro-batch began. A new stream reads
    all rows.
    """
    if not steps or ("ingest" in steps and lake.settings.source != "files"):
        return math.inf
    begun = {step: lake.checkpoint(step).last_batch_at() or _NEVER for step in steps if step != "aggregate"}
    if "aggregate" in steps:
        begun |= {
            first.step: _followed_since(lake, first, *others) for first, *others in by_sources(gold_tables.GROUPED)
        }
    since = begun.pop("ingest", None)
    landed = 0 if since is None else _bytes_since(Path(lake.settings.landing_path), since) / _ROW_BYTES
    commits = lake.store.history(tables.BRONZE_TRANSACTIONS) if lake.has(tables.BRONZE_TRANSACTIONS) else []
    first = min(begun.values(), default=datetime.now(UTC))
    return landed + sum(commit.rows or 0 for commit in commits if commit.at >= first)


def _followed_since(lake: Lake, first: GroupAggregate, *others: GroupAggregate) -> datetime:
    """Return when a stream's latest micro-batch began; a time before all rows if one of its aggregates is new."""
    checkpoint = lake.checkpoint(first.step)
    has_all = {aggregate.table.name for aggregate in others} <= {*checkpoint.notes.also_writes}
    return (checkpoint.last_batch_at() if has_all else None) or _NEVER


def _bytes_since(folder: Path, since: datetime) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # its writer has renamed it
                status = Path(parent, name).lstat()
                size += status.st_size if status.st_mtime >= since.timestamp() else 0
    return size
