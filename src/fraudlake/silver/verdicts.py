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


FIRST_KNOWN = ("verdict_known", "fraud_known")
"""The columns that :func:`first_known` adds: the times (microseconds) of the first verdict, and first fraud."""


def first_known(verdicts: DataFrame) -> DataFrame:
    """Return ``transaction_id`` with :data:`FIRST_KNOWN`; a withdrawal is no verdict."""
    at = F.unix_micros("decided_at")
    first = F.min(F.when(F.col("verdict").isNotNull(), at))
    return verdicts.groupBy("transaction_id").agg(
        first.alias(FIRST_KNOWN[0]), F.min(F.when(F.col("verdict"), at)).alias(FIRST_KNOWN[1])
    )


def first_known_of(verdicts: pa.Table) -> pa.Table:
    """Return ``transaction_id`` with :data:`FIRST_KNOWN`, as :func:`first_known` does."""
    at = verdicts["decided_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    nothing = pa.scalar(None, pa.int64())
    of_verdict = pc.if_else(verdicts["verdict"].is_valid(), at, nothing)
    of_fraud = pc.if_else(verdicts["verdict"], at, nothing)
    times = pa.table({"transaction_id": verdicts["transaction_id"], "verdict": of_verdict, "fraud": of_fraud})
    first = times.group_by("transaction_id").aggregate([("verdict", "min"), ("fraud", "min")])
    return first.select(["transaction_id", "verdict_min", "fraud_min"]).rename_columns(["transaction_id", *FIRST_KNOWN])
