"""Detector agreement: Flink's flag and our alert on each transaction are compared and counted by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("date",)


def detector_agreement(transactions: DataFrame, alerts: DataFrame) -> DataFrame:
    """Count by day (UTC) the transactions that both flagged, that only Flink flagged, and that only Spark flagged.

    Args:
        transactions: ``silver_transactions``; ``label`` is Flink's flag; null counts as false.
        alerts: ``silver_alerts``.

    Returns:
        The columns of ``gold_detector_agreement``.
    """
    alerted = alerts.groupBy("transaction_id").agg(F.lit(True).alias("alerted"))
    flink = F.coalesce("label", F.lit(False))
    spark = F.coalesce("alerted", F.lit(False))
    return (
        transactions.join(alerted, on="transaction_id", how="left")
        .groupBy("date")
        .agg(
            F.count("*").alias("transactions"),
            F.count_if(flink & spark).alias("both"),
            F.count_if(flink & ~spark).alias("only_flink"),
            F.count_if(~flink & spark).alias("only_spark"),
        )
    )
