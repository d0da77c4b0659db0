"""Groups: transactions and alerts become the aggregates by group: what they touch is computed again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.streams import refresh
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.gold.aggregate import GroupAggregate
    from fraudlake.lake import Lake


def stream(lake: Lake, aggregate: GroupAggregate) -> Stream:
    """The aggregate's sources → its table."""

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        def compute(dates: list[date]) -> DataFrame:
            return _computed(lake, aggregate, lake.read(tables.SILVER_TRANSACTIONS), dates)

        refresh.refresh(lake, refresh.of_whole_days(lake, batch), aggregate.table, aggregate.keys, compute)

    rows = partial(refresh.touched, lake, aggregate)
    return Stream(aggregate.step, rows, write, reads=aggregate.sources, persist=False)


def recompute(lake: Lake, aggregate: GroupAggregate, transactions: DataFrame, days: list[date]) -> None:
    """Compute the groups of some days again, and remove those that have no transaction any more."""
    refresh.replace_days(lake, _computed(lake, aggregate, transactions, days), aggregate, days)


def _computed(lake: Lake, aggregate: GroupAggregate, transactions: DataFrame, days: list[date]) -> DataFrame:
    live = [version.rule for version in rule_table.read(lake).live]
    rules = [rule for rule in live if isinstance(rule, SmallThenLargeRule)]
    return aggregate.compute(refresh.on_dates(transactions, days), lake.read(tables.SILVER_ALERTS), rules)
