"""Refresh: finds the groups that new rows touch, and replaces their rows in an aggregate.

A group is always computed whole, from the current tables. So repeated micro-batches and late rows give the same result
as one pass over everything.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.lake import machine_clock
from fraudlake.lake.rows import persisted
from fraudlake.text.sql_text import one_of
from fraudlake.times import literals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from pyspark.sql import Column, DataFrame

    from fraudlake.gold.aggregate import Aggregate
    from fraudlake.lake import Lake
    from fraudlake.tables import Table


def touched(lake: Lake, aggregates: Sequence[Aggregate]) -> DataFrame:
    """Return, as a stream, the groups that new rows of their sources belong to: see :func:`groups_of`."""
    groups = (groups_of(lake.read_stream(source), source, aggregates) for source in aggregates[0].sources)
    return reduce(lambda one, other: one.unionByName(other), groups)


def groups_of(rows: DataFrame, source: Table, aggregates: Iterable[Aggregate]) -> DataFrame:
    """Return the keys of the groups that rows of a source belong to: a struct for each aggregate, named as its step."""
    return rows.selectExpr(*(f"struct({', '.join(one.touches[source])}) AS {one.step}" for one in aggregates))


def select_whole_days(lake: Lake, batch: DataFrame, day: str) -> DataFrame:
    """Drop late rows of days whose other rows may have been removed: these days cannot be computed again."""
    first_day = _first_day(lake)
    return batch if first_day is None else batch.where(F.col(day) >= literals.day(first_day))


def whole_days(lake: Lake) -> dict[date, int]:
    """Return the days of silver that can be computed again, with the number of their transactions."""
    first_day = _first_day(lake)
    counted = lake.store.count_by_day(tables.SILVER_TRANSACTIONS)
    return {day: number for day, number in counted.items() if first_day is None or day >= first_day}


def _first_day(lake: Lake) -> date | None:
    return machine_clock.first_day(lake, tables.SILVER_TRANSACTIONS.name, tables.SILVER_ALERTS.name)


def counts(lake: Lake, days: list[date]) -> dict[date, int]:
    """Return the number of the transactions of each of some days."""
    return dict.fromkeys(days, 0) | lake.store.count_by_day(tables.SILVER_TRANSACTIONS, one_of("date", days))


def select_groups(computed: DataFrame, groups: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Filter computed groups by the given keys."""
    is_one = _same_group(keys, "computed", "groups")
    return computed.alias("computed").join(groups.alias("groups"), on=is_one, how="left_semi")


def on_dates(rows: DataFrame, dates: list[date]) -> DataFrame:
    """Filter by date with literals, by which Delta prunes partitions."""
    return rows.where(F.col("date").isin([literals.day(one) for one in dates]))


def _same_group(keys: Sequence[str], one: str, other: str) -> list[Column]:
    """Return the conditions that two rows, given their aliases, have the same keys; nulls are equal."""
    return [F.col(f"{one}.{key}").eqNullSafe(F.col(f"{other}.{key}")) for key in keys]


def replace_days(lake: Lake, computed: DataFrame, aggregate: Aggregate, days: list[date]) -> None:
    """Replace an aggregate's rows of some days by computed ones."""
    with persisted(computed, eager=False):
        present = on_dates(lake.read(aggregate.table), days).alias("present")
        is_same = _same_group(aggregate.keys, "present", "computed")
        gone = present.join(computed.alias("computed"), on=is_same, how="left_anti")
        changes = computed.withColumn("gone", F.lit(False)).unionByName(gone.withColumn("gone", F.lit(True)))
        lake.writer(aggregate.table).merge(changes, aggregate.keys)
