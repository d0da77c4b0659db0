"""Refresh: an aggregate follows its sources; only the groups that a micro-batch touched are recomputed.

A group is always computed whole, from the current tables. So a micro-batch that is repeated after a crash and rows that
come late give the same result as one pass over everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import literals, tables
from fraudlake.lake.rows import persisted, persisted_batch

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.gold.aggregate import Aggregate
    from fraudlake.lake import Lake
    from fraudlake.tables import Table


Compute = Callable[["list[date]"], "DataFrame"]
"""Computes all groups of the given dates."""


def touched(lake: Lake, aggregate: Aggregate) -> DataFrame:
    """Return, as a stream, what new rows of an aggregate's sources touch."""
    sources = [lake.read_stream(table).selectExpr(*columns) for table, columns in aggregate.touches.items()]
    return reduce(lambda one, other: one.unionByName(other), sources)


def of_whole_days(lake: Lake, batch: DataFrame) -> DataFrame:
    """Leave out late rows of days whose other rows may have left silver: these days cannot be computed again."""
    first_day = lake.settings.first_day(tables.SILVER_TRANSACTIONS.name, tables.SILVER_ALERTS.name)
    return batch if first_day is None else batch.where(F.col("date") >= literals.day(first_day))


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
            is_touched = _same_group(keys, "computed", "touched")
            rows = compute(dates).alias("computed").join(groups.alias("touched"), on=is_touched, how="left_semi")
            lake.upsert(rows, table, keys, dates)


def on_dates(rows: DataFrame, dates: list[date]) -> DataFrame:
    """Filter by date with literals, by which Delta prunes partitions."""
    return rows.where(F.col("date").isin([literals.day(one) for one in dates]))


def _same_group(keys: Sequence[str], one: str, other: str) -> list[Column]:
    """Return the conditions that two rows are of one group, given their aliases; a null is a value like any other."""
    return [F.col(f"{one}.{key}").eqNullSafe(F.col(f"{other}.{key}")) for key in keys]


def replace_days(lake: Lake, computed: DataFrame, aggregate: Aggregate, days: list[date]) -> None:
    """Replace rows of some days of an aggregate by computed ones."""
    with persisted(computed, eager=False):
        present = on_dates(lake.read(aggregate.table), days).alias("present")
        is_same = _same_group(aggregate.keys, "present", "computed")
        gone = present.join(computed.alias("computed"), on=is_same, how="left_anti")
        changes = computed.withColumn("gone", F.lit(False)).unionByName(gone.withColumn("gone", F.lit(True)))
        lake.apply_changes(changes, aggregate.table, aggregate.keys)
