"""Refresh: an aggregate follows its sources; only the groups that a micro-batch touched are recomputed.

A group is always computed whole, from the current tables. So a micro-batch that is repeated after a crash and rows that
come late give the same result as one pass over everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.streaming import conflict
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
            merge(lake, rows, aggregate.table, aggregate.keys, dates)


def merge_changes(lake: Lake, changes: DataFrame, table: Table, keys: tuple[str, ...]) -> None:
    """Merge changes into a table in one commit.

    ``changes`` has the table's columns and ``gone``: where that is true, the row with the same keys is deleted.
    """
    with persisted(changes) as changes:
        dates = [row["date"] for row in changes.select("date").distinct().collect()]
        if dates:
            _merge(lake, changes, table, keys, dates)


def merge(lake: Lake, rows: DataFrame, table: Table, keys: tuple[str, ...], dates: list[date]) -> None:
    """Upsert rows of the given dates: a row replaces the row with the same keys, or is inserted where there is none."""
    _merge(lake, rows.withColumn("gone", F.lit(False)), table, keys, dates)


def _merge(lake: Lake, changes: DataFrame, table: Table, keys: tuple[str, ...], dates: list[date]) -> None:
    view = f"{table.name}_changes"
    changes.select(*table.column_names, "gone").createOrReplaceTempView(view)
    same = " AND ".join(f"t.{key} <=> s.{key}" for key in keys)
    within = ", ".join(f"DATE '{day}'" for day in dates)
    differs = " OR ".join(f"NOT t.{column} <=> s.{column}" for column in table.column_names)
    merge = (
        f"MERGE INTO {lake.name_of(table)} t USING {view} s ON {same} AND t.date IN ({within}) "
        f"WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED AND ({differs}) THEN UPDATE SET * "
        "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *"
    )
    conflict.retried(lambda: lake.spark.sql(merge))


def on_dates(rows: DataFrame, dates: list[date]) -> DataFrame:
    """Filter by date with literals, by which Delta prunes partitions."""
    return rows.where(F.col("date").isin(dates))
