"""Truth: reads the labels and verdicts of a range of days, against which alerts are measured."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection.report import Range
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


def condition(day: str, first: date | None, last: date | None) -> str:
    """Return the SQL condition that a day (an SQL expression) is in an inclusive range."""
    limits = [f"{day} >= '{first}'"] if first else []
    limits += [f"{day} <= '{last}'"] if last else []
    return " AND ".join(limits) or "true"


def count_range(lake: Lake, in_range: str) -> Range:
    """Summarize silver's rows of a range, which is given as a condition on ``date``."""
    figures = "count(*) AS transactions, min(date) AS first, max(date) AS last, sum(CASE WHEN label THEN 1 ELSE 0 END)"
    (row,) = lake.store.query(
        f"SELECT {figures} AS fraud FROM {tables.SILVER_TRANSACTIONS.name} WHERE {in_range}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    return Range(row["transactions"], row["first"], row["last"], row["fraud"] or 0)


def count_rows(transactions: DataFrame) -> Range:
    """Summarize rows of silver; they have at least ``date`` and ``label``."""
    figures = F.count("*"), F.min("date"), F.max("date"), F.count_if("label")
    return Range(*transactions.agg(*figures).collect()[0])


def verdicts_on(lake: Lake, in_range: str, transactions: DataFrame | None = None) -> DataFrame:
    """Return ``transaction_id, verdict`` of the latest verdicts of a range; true is fraud.

    Args:
        lake: the lake.
        in_range: a condition on ``date``.
        transactions: ``transaction_id`` of the transactions to include; None: all.
    """
    latest = verdicts.latest(lake.read(tables.SILVER_VERDICTS)).where(in_range)
    if transactions is not None:
        latest = latest.join(transactions, on="transaction_id", how="left_semi")
    return latest.select("transaction_id", "verdict")


def frauds(decided: DataFrame) -> int:
    """Return the number of verdicts that say fraud."""
    return decided.where("verdict").count()
