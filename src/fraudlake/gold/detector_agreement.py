"""Detector agreement: Flink's flag and our alert on each transaction are compared and counted by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.gold.aggregate import Aggregate
from fraudlake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

KEYS = ("date",)
TABLE = Table(
    "gold_detector_agreement",
    "A day (UTC): Flink's own verdict beside the alerts of silver_alerts.",
    """
    date DATE day (UTC)
    transactions BIGINT number of transactions
    both BIGINT transactions that both flagged
    only_flink BIGINT transactions that only Flink flagged
    only_spark BIGINT transactions that only silver_alerts has
    """,
)


def detector_agreement(transactions: DataFrame, alerts: DataFrame, settings: Settings) -> DataFrame:
    """Count by day (UTC) the transactions that both flagged, that only Flink flagged, and that only Spark flagged.

    Args:
        transactions: ``silver_transactions``; ``label`` is Flink's flag; null counts as false.
        alerts: ``silver_alerts``.
        settings: not needed.

    Returns:
        The columns of ``gold_detector_agreement``.
    """
    alerted = alerts.groupBy("transaction_id").agg(F.lit(True).alias("alerted"))
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


AGGREGATE = Aggregate(TABLE, KEYS, detector_agreement)
