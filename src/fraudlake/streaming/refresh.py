"""Refresh: an aggregate follows its sources by computing anew only the groups that a micro-batch touched.

A group is always computed whole from the tables as they are, so a micro-batch repeated after a crash, or rows that
come late, give the same result as one pass over everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.streaming import conflict
from fraudlake.streaming.rows import kept

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


@dataclass(frozen=True)
class Aggregate:
    """A table of groups: ``keys`` name a group, one of them ``date``; ``compute`` returns all groups of given dates."""

    table: Table
    keys: tuple[str, ...]
    compute: Callable[[Lake, list[date]], DataFrame]


def refresh(lake: Lake, touched: DataFrame, aggregate: Aggregate) -> None:
    """Compute the groups that ``touched`` names and merge them into the aggregate's table."""
    with kept(touched.select(*aggregate.keys).distinct()) as groups:
        dates = [row["date"] for row in groups.select("date").distinct().collect()]
        if dates:
            rows = aggregate.compute(lake, dates).join(groups, on=list(aggregate.keys), how="left_semi")
            merge(lake, rows, aggregate.table, aggregate.keys, dates)


def carry_out(lake: Lake, changes: DataFrame, table: Table, keys: tuple[str, ...]) -> None:
    """Merge changes, the table's columns and ``gone``, into a table in one commit; a row that is gone is deleted."""
    with kept(changes) as changes:
        dates = [row["date"] for row in changes.select("date").distinct().collect()]
        if dates:
            _merge(lake, changes, table, keys, dates)


def merge(lake: Lake, rows: DataFrame, table: Table, keys: tuple[str, ...], dates: list[date]) -> None:
    """Put rows of some dates into a table: each in the place of the row with the same keys, where there is one."""
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
    """Keep the rows of some dates, by literals, which prune partitions."""
    return rows.where(F.col("date").isin(dates))
