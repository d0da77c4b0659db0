"""Verdicts: analysts' decisions about transactions become rows of ``silver_verdicts``; the latest one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

REQUIRED = ("transaction_id", "verdict")
_OPTIONAL = {"analyst": "string", "reason": "string", "decided_at": "timestamp"}
_FRAUD, _HONEST = ("true", "1", "yes", "fraud"), ("false", "0", "no", "ok")


def from_file(rows: DataFrame, silver: DataFrame, decided_at: datetime) -> DataFrame:
    """Read the rows of a verdict file.

    Args:
        rows: :data:`REQUIRED` and any of ``analyst, reason, decided_at``, as text or typed. ``verdict`` is true, 1,
            yes or fraud for fraud, and false, 0, no or ok otherwise.
        silver: the transactions.
        decided_at: the time for rows that have none of their own.

    Returns:
        The columns of ``silver_verdicts``. ``verdict`` is null where its text is none of these; ``date`` (of the
        transaction) is null where silver does not hold the transaction.
    """
    text = F.lower(F.trim(F.col("verdict").cast("string")))
    given = rows.select(
        F.col("transaction_id").cast("string").alias("transaction_id"),
        F.when(text.isin(*_FRAUD), True).when(text.isin(*_HONEST), False).alias("verdict"),
        *(
            (F.col(name).try_cast(kind) if name in rows.columns else F.lit(None).cast(kind)).alias(name)
            for name, kind in _OPTIONAL.items()
        ),
    )
    timed = given.withColumn("decided_at", F.coalesce("decided_at", F.lit(decided_at)))
    return timed.join(silver.select("transaction_id", "date"), on="transaction_id", how="left").distinct()


def latest(verdicts: DataFrame) -> DataFrame:
    """Return the latest verdict on each transaction."""
    newest = Window.partitionBy("transaction_id").orderBy(F.desc("decided_at"), F.desc("verdict"))
    return verdicts.withColumn("_nth", F.row_number().over(newest)).where("_nth = 1").drop("_nth")
