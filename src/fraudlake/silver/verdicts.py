"""Verdicts: analysts' decisions about transactions become rows of ``silver_verdicts``; the latest one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

IDS = ("transaction_id", "alert_id", "case_id")
_OPTIONAL = {"analyst": "string", "reason": "string", "decided_at": "timestamp"}
_FRAUD, _HONEST = ("true", "1", "yes", "fraud"), ("false", "0", "no", "ok", "genuine")


def from_file(
    rows: DataFrame, silver: DataFrame, alerts: DataFrame, cases: DataFrame, decided_at: datetime
) -> DataFrame:
    """Read the rows of a verdict file.

    Args:
        rows: ``verdict``, any of :data:`IDS`, and any of ``analyst, reason, decided_at``, as text or typed.
            ``verdict`` is true, 1, yes or fraud for fraud, and false, 0, no, ok or genuine otherwise. A verdict on an
            alert is one on the transaction that completed it, and one on a case is one on each of its transactions.
        silver: the transactions.
        alerts: ``alert_id, transaction_id`` of alerts of all kinds.
        cases: ``case_id, transaction_ids`` of cases, by each alert that names them.
        decided_at: the time for rows that have none of their own.

    Returns:
        The columns of ``silver_verdicts``, and ``given``: the id that the file has. ``verdict`` is null if its text
        is none of them; ``date`` (of the transaction) is null if the lake has no such transaction, alert or case.
    """
    text = F.lower(F.trim(F.col("verdict").cast("string")))
    given = rows.select(
        *(_text(rows, name) for name in IDS),
        F.when(text.isin(*_FRAUD), True).when(text.isin(*_HONEST), False).alias("verdict"),
        *(
            (F.col(name).try_cast(kind) if name in rows.columns else F.lit(None).cast(kind)).alias(name)
            for name, kind in _OPTIONAL.items()
        ),
    )
    timed = given.withColumn("decided_at", F.coalesce("decided_at", F.lit(decided_at)))
    completed = alerts.select("alert_id", F.col("transaction_id").alias("completed_by")).distinct()
    one = F.coalesce("transaction_id", "completed_by")
    named = (
        timed.join(completed, on="alert_id", how="left")
        .join(cases.select("case_id", "transaction_ids"), on="case_id", how="left")
        .withColumn("given", F.coalesce(*IDS))
        .withColumn(
            "transaction_id", F.explode_outer(F.when(one.isNotNull(), F.array(one)).otherwise(F.col("transaction_ids")))
        )
        .drop("alert_id", "case_id", "completed_by", "transaction_ids")
    )
    return named.join(silver.select("transaction_id", "date"), on="transaction_id", how="left").distinct()


def _text(rows: DataFrame, name: str) -> Column:
    """Return a column of ids; what the file leaves blank, or does not have, is null."""
    text = F.col(name).cast("string") if name in rows.columns else F.lit(None).cast("string")
    return F.when(F.trim(text) != "", text).alias(name)


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
