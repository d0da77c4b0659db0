"""Refresh: an aggregate follows its sources; only the groups that a micro-batch touched are recomputed.

A group is always computed whole, from the current tables. So a micro-batch that is repeated after a crash and rows that
come late give the same result as one pass over everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.streaming import merge
from fraudlake.streaming.rows import persisted

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


@dataclass(frozen=True)
class Aggregate:
    """A table with one row a group.

    ``keys`` are the columns that identify a group; ``date`` is one of them. ``compute`` returns all groups of the given
    dates.
    """

    table: Table
    keys: tuple[str, ...]
    compute: Callable[[Lake, list[date]], DataFrame]


def refresh(lake: Lake, touched: DataFrame, aggregate: Aggregate) -> None:
    """Recompute the groups whose keys are in ``touched`` and merge them into the aggregate's table."""
    with persisted(touched.select(*aggregate.keys).distinct()) as groups:
        dates = [row["date"] for row in groups.select("date").distinct().collect()]
        if dates:
            rows = aggregate.compute(lake, dates).join(groups, on=list(aggregate.keys), how="left_semi")
            merge.upsert(lake, rows, aggregate.table, aggregate.keys, dates)


def on_dates(rows: DataFrame, dates: list[date]) -> DataFrame:
    """Filter by date with literals, by which Delta prunes partitions."""
    return rows.where(F.col("date").isin(dates))
