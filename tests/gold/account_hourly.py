"""Account hours: transactions and alerts become figures of each account by hour."""

from __future__ import annotations

from pyspark.sql import functions as F

from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, Table

KEYS = ("account_id", "hour", "date")
TABLE = Table(
    "gold_account_hourly",
    "An hour of an account.",
    """
    account_id STRING account
    hour TIMESTAMP beginning of the hour (UTC)
    date DATE day (UTC)
    transactions BIGINT number of transactions
    alerts BIGINT alerts
    """,
)
GROUP = ("account_id", "date_trunc('hour', timestamp) AS hour", "to_date(timestamp) AS date")


def account_hourly(transactions, alerts, rules):  # type: ignore[no-untyped-def]
    rows = transactions.selectExpr(*GROUP, "1 AS transactions", "0 AS alerts")
    rows = rows.unionByName(alerts.selectExpr(*GROUP, "0 AS transactions", "1 AS alerts"))
    figures = rows.groupBy(*KEYS).agg(F.sum("transactions").alias("transactions"), F.sum("alerts").alias("alerts"))
    return figures.where("transactions > 0")


AGGREGATE = GroupAggregate(TABLE, KEYS, {SILVER_TRANSACTIONS: GROUP, SILVER_ALERTS: GROUP}, account_hourly)
