"""Merchant hours: transactions become figures of each merchant, a declared column, by hour."""

from __future__ import annotations

from pyspark.sql import functions as F

from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.tables import SILVER_TRANSACTIONS, Table

KEYS = ("merchant_id", "hour", "date")
TABLE = Table(
    "gold_merchant_hourly",
    "An hour of a merchant.",
    """
    merchant_id STRING merchant; null where it is unknown
    hour TIMESTAMP beginning of the hour (UTC)
    date DATE day (UTC)
    transactions BIGINT number of transactions
    """,
)
GROUP = ("merchant_id", "date_trunc('hour', timestamp) AS hour", "date")


def merchant_hourly(transactions, alerts, rules):  # type: ignore[no-untyped-def]
    return transactions.selectExpr(*GROUP).groupBy(*KEYS).agg(F.count("*").alias("transactions"))


AGGREGATE = GroupAggregate(TABLE, KEYS, {SILVER_TRANSACTIONS: GROUP}, merchant_hourly)
