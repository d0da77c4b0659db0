"""Refresh: an aggregate follows its sources; only the groups that a micro-batch touched are recomputed.

A group is always computed whole, from the current tables. So a micro-batch that is repeated after a crash and rows that
come late give the same result as one pass over everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import literals, tables
from fraudlake.lake.rows import persisted, persisted_batch

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


Compute = Callable[["list[date]"], "DataFrame"]
"""Computes all groups of the given dates."""


def refresh(lake: Lake, touched: DataFrame, table: Table, keys: tuple[str, ...], compute: Compute) -> None:
    """Recompute groups and merge them into their table.

    Args:
        lake: the lake, in the session of ``touched``.
        touched: the keys of the groups, in any number of rows.
        table: the table, one row a group.
        keys: the columns that identify a group; ``date`` is one of them.
        compute: computes the groups of the touched dates.
    """
    groups = touched.select(*keys).distinct()
    with persisted_batch(groups) as require_again:
        counts = {row["date"]: row["count"] for row in groups.groupBy("date").count().collect()}
        require_again(sum(counts.values()))
        dates = list(counts)
        if dates:
            rows = compute(dates).join(groups, on=list(keys), how="left_semi")
            lake.upsert(rows, table, keys, dates)


def on_dates(rows: DataFrame, dates: list[date]) -> DataFrame:
    """Filter by date with literals, by which Delta prunes partitions."""
    return rows.where(F.col("date").isin([literals.day(one) for one in dates]))


def of_whole_days(lake: Lake, batch: DataFrame, date: Column) -> DataFrame:
    """Leave out late rows of days whose other rows may have left silver: these days cannot be computed again."""
    first_day = lake.settings.first_day(tables.SILVER_TRANSACTIONS.name, tables.SILVER_ALERTS.name)
    return batch if first_day is None else batch.where(date >= literals.day(first_day))


def replace_days(lake: Lake, computed: DataFrame, table: Table, keys: tuple[str, ...], days: list[date]) -> None:
    """Replace a table's rows of some days by computed ones."""
    with persisted(computed, eager=False):
        gone = on_dates(lake.read(table), days).join(computed, on=list(keys), how="left_anti")
        changes = computed.withColumn("gone", F.lit(False)).unionByName(gone.withColumn("gone", F.lit(True)))
        lake.apply_changes(changes, table, keys)
