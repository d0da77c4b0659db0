"""Verdicts: analysts' decisions about transactions, in ``silver_verdicts``; the latest one counts.

A row whose ``verdict`` is null withdraws the earlier ones: the transaction then has no verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def latest(verdicts: DataFrame) -> DataFrame:
    """Return the latest verdict on each transaction, unless it was withdrawn."""
    newest = Window.partitionBy("transaction_id").orderBy(F.desc("decided_at"), F.desc("verdict"))
    return (
        verdicts.withColumn("_nth", F.row_number().over(newest)).where("_nth = 1 AND verdict IS NOT NULL").drop("_nth")
    )


CHOSEN_BY = ("transaction_id", "verdict", "decided_at")
"""The columns that :func:`latest_of` needs."""


def latest_of(verdicts: pa.Table) -> pa.Table:
    """Return ``transaction_id, verdict`` of the latest verdict on each transaction, as :func:`latest` chooses it."""
    # At the same instant, a verdict wins over a withdrawal, and fraud over genuine.
    rank = verdicts["verdict"].cast(pa.int8()).fill_null(-1)
    keys = pa.table({"decided_at": verdicts["decided_at"], "rank": rank})
    order = pc.sort_indices(keys, [("decided_at", "ascending"), ("rank", "ascending")])
    grouped = verdicts.take(order).group_by("transaction_id", use_threads=False)
    last = grouped.aggregate([("verdict", "last", pc.ScalarAggregateOptions(skip_nulls=False))])
    named = last.rename_columns(["transaction_id", "verdict"])
    return named.filter(named["verdict"].is_valid())


def first_frauds_of(verdicts: pa.Table) -> pa.Table:
    """Return ``transaction_id, fraud_known``: the time (microseconds) of the first verdict of fraud."""
    frauds = verdicts.filter(verdicts["verdict"])
    decided_at = frauds["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    grouped = pa.table({"transaction_id": frauds["transaction_id"], "at": decided_at}).group_by("transaction_id")
    return (
        grouped.aggregate([("at", "min")])
        .select(["transaction_id", "at_min"])
        .rename_columns(["transaction_id", "fraud_known"])
    )
