"""Aggregate: transactions and alerts become the tables of ``gold/``, whose touched groups are computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import gold, tables
from fraudlake.detection import rule_table
from fraudlake.rules.small_then_large import SmallThenLargeRule
from fraudlake.streams import lanes, refresh, windows
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.gold.aggregate import Aggregate
    from fraudlake.lake import Lake


def streams(lake: Lake) -> list[Stream]:
    """``silver_transactions`` and ``silver_alerts`` → the aggregates by day, and ``gold_alert_windows``.

    If there is a topic of fast alerts: also ``bronze_fast_alerts`` and ``silver_alerts`` → ``gold_lane_agreement``.
    """
    compared = [] if lake.settings.fast_alerts_topic is None else [lanes.stream(lake)]
    return [*(_refreshed(lake, aggregate) for aggregate in gold.AGGREGATES), windows.stream(lake), *compared]


def _refreshed(lake: Lake, aggregate: Aggregate) -> Stream:
    transactions = lake.read_stream(tables.SILVER_TRANSACTIONS).select("account_id", "date")
    alerts = lake.read_stream(tables.SILVER_ALERTS).selectExpr("account_id", "to_date(timestamp) AS date")

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        def compute(dates: list[date]) -> DataFrame:
            days = refresh.on_dates(lake.read(tables.SILVER_TRANSACTIONS), dates)
            return aggregate.compute(days, lake.read(tables.SILVER_ALERTS), _pair_rules(lake))

        refresh.refresh(
            lake, refresh.of_whole_days(lake, batch, F.col("date")), aggregate.table, aggregate.keys, compute
        )

    return Stream(
        aggregate.table.name.removeprefix("gold_"),
        transactions.unionByName(alerts),
        write,
        reads=(tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS),
        persist=False,
    )


def recompute_days(lake: Lake, aggregate: Aggregate, transactions: DataFrame, days: list[date]) -> None:
    """Compute the groups of some days again, and remove those that have no transaction any more."""
    computed = aggregate.compute(
        refresh.on_dates(transactions, days), lake.read(tables.SILVER_ALERTS), _pair_rules(lake)
    )
    refresh.replace_days(lake, computed, aggregate.table, aggregate.keys, days)


def _pair_rules(lake: Lake) -> list[SmallThenLargeRule]:
    """Return the rules of the kind ``small_then_large`` that are live."""
    return [version.rule for version in rule_table.read(lake).live if isinstance(version.rule, SmallThenLargeRule)]
