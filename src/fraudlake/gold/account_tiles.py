"""Account tiles: figures of transactions and alerts, per account and ten minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, Table
from fraudlake.text.sql_text import bounded_sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("account_id", "tile_start", "date")
TABLE = Table(
    "gold_account_tiles",
    "Ten minutes of an account that have a transaction: the parts of which `gold_alert_windows` is made.",
    """
    account_id STRING account
    tile_start TIMESTAMP beginning (UTC), a full ten minutes
    date DATE day (UTC)
    transactions BIGINT number of transactions
    amount_sum DOUBLE sum of their amounts, in account currency, or in the lake's base currency
    amount_max DOUBLE largest amount, in account currency, or in the lake's base currency
    alerts BIGINT alerts
    first_transaction TIMESTAMP event time (UTC) of the first transaction
    last_transaction TIMESTAMP event time (UTC) of the last transaction
    """,
    partitioned_by=("date",),
    zorder=("account_id",),
)
_TEN_MINUTES = 600_000_000  # microseconds
# Unlike date_trunc and window, this does not depend on the session's time zone.
_TILE = f"timestamp_micros(unix_micros(timestamp) - pmod(unix_micros(timestamp), {_TEN_MINUTES})) AS tile_start"


def account_tiles(transactions: DataFrame, alerts: DataFrame, rules: object, summed: str = "amount") -> DataFrame:
    """Aggregate by account and ten minutes.

    Args:
        transactions: ``silver_transactions``.
        alerts: ``silver_alerts`` of the same days or more; an alert has the time of its large transaction.
        rules: not needed.
        summed: the amount that is added up, in SQL: see :func:`~fraudlake.values.summed_amount`.

    Returns:
        The columns of ``gold_account_tiles``.
    """
    activity = (
        transactions.selectExpr("account_id", _TILE, "date", "timestamp", f"{summed} AS amount")
        .groupBy(*KEYS)
        .agg(
            F.count("*").alias("transactions"),
            F.expr(bounded_sum("amount")).alias("amount_sum"),
            F.max("amount").alias("amount_max"),
            F.min("timestamp").alias("first_transaction"),
            F.max("timestamp").alias("last_transaction"),
        )
    )
    alerted = alerts.selectExpr("account_id", _TILE).groupBy(*KEYS[:2]).agg(F.count("*").alias("alerts"))
    return (
        activity.join(alerted, on=list(KEYS[:2]), how="left")
        .withColumn("alerts", F.coalesce("alerts", F.lit(0)))
        .select(*TABLE.column_names)
    )


AGGREGATE = GroupAggregate(
    TABLE,
    KEYS,
    {
        SILVER_TRANSACTIONS: ("account_id", _TILE, "date"),
        SILVER_ALERTS: ("account_id", _TILE, "to_date(timestamp) AS date"),
    },
    account_tiles,
    adds_amounts=True,
)
