"""Account days: one row of figures per account and day, from transactions and alerts."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.tables import GOLD_ACCOUNT_DAILY, SILVER_ALERTS, SILVER_TRANSACTIONS
from fraudlake.text.sql_text import bounded_sum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule

KEYS = ("account_id", "date")
TABLE = GOLD_ACCOUNT_DAILY


def account_daily(
    transactions: DataFrame, alerts: DataFrame, rules: Sequence[SmallThenLargeRule], summed: str = "amount"
) -> DataFrame:
    """Aggregate by account and day (UTC).

    Args:
        transactions: ``silver_transactions``.
        alerts: ``silver_alerts`` of the same days or more.
        rules: the small-then-large rules; a transaction counts as small, or large, if it is for any of them.
        summed: the amount that is added up, in SQL: see :func:`~fraudlake.values.summed_amount`.

    Returns:
        The columns of ``gold_account_daily``.
    """
    amount = F.col("amount")
    none = F.lit(False)
    small = functools.reduce(operator.or_, (rule.is_small(amount) for rule in rules), none)
    large = functools.reduce(operator.or_, (rule.is_large(amount) for rule in rules), none)
    activity = transactions.groupBy(*KEYS).agg(
        F.count("*").alias("transactions"),
        F.expr(bounded_sum(summed)).alias("amount_sum"),
        F.max(F.expr(summed)).alias("amount_max"),
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


AGGREGATE = GroupAggregate(
    TABLE,
    KEYS,
    {SILVER_TRANSACTIONS: KEYS, SILVER_ALERTS: ("account_id", "to_date(timestamp) AS date")},
    account_daily,
    adds_amounts=True,
)
