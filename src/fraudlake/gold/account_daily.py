"""Account days: transactions and alerts become one row of figures for each account and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import FraudRule

KEYS = ("account_id", "date")


def account_daily(transactions: DataFrame, alerts: DataFrame, rules: tuple[FraudRule, ...]) -> DataFrame:
    """Aggregate by account and day (UTC).

    Args:
        transactions: ``silver_transactions``.
        alerts: ``silver_alerts`` of the same days or more.
        rules: the fraud rules; a transaction counts as small, or as large, if it is so for any of them.

    Returns:
        The columns of ``gold_account_daily``; amounts in account currency.
    """
    small = F.col("amount") < max(rule.small_below for rule in rules)
    large = F.col("amount") > min(rule.large_above for rule in rules)
    activity = transactions.groupBy(*KEYS).agg(
        F.count("*").alias("transactions"),
        F.sum("amount").alias("amount_sum"),
        F.max("amount").alias("amount_max"),
        F.count_if(small).alias("small_transactions"),
        F.count_if(large).alias("large_transactions"),
    )
    alerted = alerts.groupBy("account_id", F.to_date("timestamp").alias("date")).agg(F.count("*").alias("alerts"))
    return activity.join(alerted, on=list(KEYS), how="left").select(
        *KEYS,
        "transactions",
        "amount_sum",
        "amount_max",
        "small_transactions",
        "large_transactions",
        F.coalesce("alerts", F.lit(0)).alias("alerts"),
    )
