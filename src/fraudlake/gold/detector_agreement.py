"""Detector agreement: compares Flink's flag and our alert on each transaction, and counts by day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.entity import ACCOUNT
from fraudlake.gold.aggregate import GroupAggregate
from fraudlake.tables import SILVER_ALERTS, SILVER_TRANSACTIONS, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule

KEYS = ("date",)
TABLE = Table(
    "gold_detector_agreement",
    "A day (UTC): Flink's own verdict compared with the alerts of the kind small_then_large.",
    """
    date DATE day (UTC)
    transactions BIGINT number of transactions
    both BIGINT transactions that both flagged
    only_flink BIGINT transactions that only Flink flagged
    only_spark BIGINT transactions that only fraudlake flagged
    """,
)


def detector_agreement(transactions: DataFrame, alerts: DataFrame, rules: Sequence[SmallThenLargeRule]) -> DataFrame:
    """Count by day (UTC) the transactions that both flagged, that only Flink flagged, and that only Spark flagged.

    Args:
        transactions: ``silver_transactions``; ``label`` is Flink's flag; null counts as false.
        alerts: ``silver_alerts``; only alerts of small-then-large rules by account count, as in Flink's detector.
        rules: not needed.

    Returns:
        The columns of ``gold_detector_agreement``.
    """
    is_flinks_rule = (F.col("kind") == "small_then_large") & (F.col("entity") == ACCOUNT)
    alerted = alerts.where(is_flinks_rule).groupBy("transaction_id").agg(F.lit(True).alias("alerted"))
    flink = F.coalesce("label", F.lit(False))
    spark = F.coalesce("alerted", F.lit(False))
    return (
        transactions.select("transaction_id", "label", "date")
        .join(alerted, on="transaction_id", how="left")
        .groupBy("date")
        .agg(
            F.count("*").alias("transactions"),
            F.count_if(flink & spark).alias("both"),
            F.count_if(flink & ~spark).alias("only_flink"),
            F.count_if(~flink & spark).alias("only_spark"),
        )
    )


AGGREGATE = GroupAggregate(
    TABLE,
    KEYS,
    {SILVER_TRANSACTIONS: KEYS, SILVER_ALERTS: ("to_date(timestamp) AS date",)},
    detector_agreement,
)
