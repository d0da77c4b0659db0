"""Verdicts: analysts' decisions about transactions become rows of ``silver_verdicts``; the latest one counts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDS = ("transaction_id", "alert_id", "case_id")


def payments(rows: DataFrame, silver: DataFrame, alerts: DataFrame, cases: DataFrame) -> DataFrame:
    """Find the payments that verdicts are about.

    Args:
        rows: ``row, transaction_id, alert_id, case_id, reference``, all texts but the number of the row. A verdict on
            an alert is one on the transaction that completed it, and one on a case is one on each of its transactions.
        silver: the transactions, ``transaction_id, reference, date``.
        alerts: ``alert_id, transaction_id`` of alerts of all kinds.
        cases: ``case_id, transaction_ids`` of cases, by each alert that names them.

    Returns:
        ``row, transaction_id, date`` of each payment.
    """
    completed = alerts.distinct()
    of_cases = cases.select("case_id", F.explode("transaction_ids").alias("transaction_id"))
    chosen = rows.select("row", *IDS)
    named = [
        chosen.where("transaction_id IS NOT NULL").select("row", "transaction_id"),
        chosen.where("transaction_id IS NULL AND alert_id IS NOT NULL")
        .drop("transaction_id")
        .join(completed, on="alert_id", how="inner")
        .select("row", "transaction_id"),
        chosen.where("coalesce(transaction_id, alert_id) IS NULL AND case_id IS NOT NULL")
        .drop("transaction_id")
        .join(of_cases, on="case_id", how="inner")
        .select("row", "transaction_id"),
    ]
    by_id = functools.reduce(lambda some, others: some.unionByName(others), named)
    found = by_id.join(silver.select("transaction_id", "date"), on="transaction_id", how="inner")
    by_reference = rows.where("coalesce(transaction_id, alert_id, case_id) IS NULL").select("row", "reference")
    referred = by_reference.join(silver.where("reference IS NOT NULL"), on="reference", how="inner")
    columns = ["row", "transaction_id", "date"]
    return found.select(columns).unionByName(referred.select(columns)).distinct()


def latest(verdicts: DataFrame) -> DataFrame:
    """Return the latest verdict on each transaction."""
    newest = Window.partitionBy("transaction_id").orderBy(F.desc("decided_at"), F.desc("verdict"))
    return verdicts.withColumn("_nth", F.row_number().over(newest)).where("_nth = 1").drop("_nth")


CHOSEN_BY = ("transaction_id", "verdict", "decided_at")
"""The columns that :func:`latest_of` needs."""


def latest_of(verdicts: pa.Table) -> pa.Table:
    """Return ``transaction_id, verdict`` of the latest verdict on each transaction, as :func:`latest` chooses it."""
    order = pc.sort_indices(verdicts, [("decided_at", "ascending"), ("verdict", "ascending")])
    grouped = verdicts.take(order).group_by("transaction_id", use_threads=False)
    return grouped.aggregate([("verdict", "last")]).rename_columns(["transaction_id", "verdict"])


def first_frauds_of(verdicts: pa.Table) -> pa.Table:
    """Return ``transaction_id, fraud_known``: the time (microseconds) of the first verdict that calls it fraud."""
    frauds = verdicts.filter(verdicts["verdict"])
    decided_at = frauds["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    grouped = pa.table({"transaction_id": frauds["transaction_id"], "at": decided_at}).group_by("transaction_id")
    return (
        grouped.aggregate([("at", "min")])
        .select(["transaction_id", "at_min"])
        .rename_columns(["transaction_id", "fraud_known"])
    )
