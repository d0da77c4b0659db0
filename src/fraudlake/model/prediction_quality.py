"""Prediction quality: scored transactions become figures by day, model version and source of the true label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.model.metrics import Budget, Judged, all_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAYS = ("date", "model_version")
KEYS = (*DAYS, "judged_by")
_COMPARED = ("account_id", "amount", "label", "prediction", "probability")
_DEFAULT = Budget()
JUDGES = ("flink", "verdict")
"""The source of the true label: Flink's label, or an analyst's verdict."""


def prediction_quality(predictions: DataFrame, verdicts: DataFrame, budget: Budget = _DEFAULT) -> DataFrame:
    """Compare predictions with Flink's label and with the verdicts, by day (UTC) and model version.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        budget: the number of alerts a day, and the cost of each.

    Returns:
        The columns of ``gold_prediction_quality``: :func:`metrics.all_of` the predictions whose label is known.
    """
    by_flink, by_verdict = (
        judged(predictions, verdicts, judge).withColumn("judged_by", F.lit(judge)).select(*KEYS, *_COMPARED)
        for judge in JUDGES
    )
    known = by_flink.unionByName(by_verdict)
    columns = tables.GOLD_PREDICTION_QUALITY.columns
    return known.groupBy(*KEYS).applyInArrow(lambda rows: _figures(rows, budget), columns)


def of_group(predictions: pa.Table, verdicts: pa.Table, budget: Budget = _DEFAULT) -> pa.Table:
    """Compare the predictions of a day and a version in this process; the rows of :func:`prediction_quality`.

    Args:
        predictions: rows of ``gold_fraud_predictions`` of one day and one version.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        budget: the number of alerts a day, and the cost of each.
    """
    decided = verdicts["verdict"].take(pc.index_in(predictions["transaction_id"], verdicts["transaction_id"]))
    figures = [tables.GOLD_PREDICTION_QUALITY.schema.empty_table()]
    for judge, label in zip(JUDGES, (predictions["label"], decided), strict=True):
        labelled = predictions.drop_columns("label").append_column("label", label)
        known = labelled.append_column("judged_by", pa.repeat(judge, len(labelled))).filter(label.is_valid())
        if len(known):
            figures.append(_figures(known, budget))
    return pa.concat_tables(figures)


def judged(predictions: DataFrame, verdicts: DataFrame, judge: str) -> DataFrame:
    """Return the predictions whose truth one of :data:`JUDGES` knows, with that truth as their ``label``.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        judge: the source of the truth.
    """
    if judge == "verdict":
        decided = verdicts.select("transaction_id", F.col("verdict").alias("label"))
        predictions = predictions.drop("label").join(decided, on="transaction_id", how="inner")
    return predictions.where(F.col("label").isNotNull())


def _figures(rows: pa.Table, budget: Budget) -> pa.Table:
    """Return the row of a group."""
    accounts = rows["account_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    fraud, predicted, scores, amounts = (
        rows[name].to_numpy() for name in ("label", "prediction", "probability", "amount")
    )
    days, weights = np.zeros(len(rows), np.int64), np.ones(len(rows))
    judged = Judged(fraud, predicted, scores, amounts, accounts, days, weights)
    keys = {name: rows[name][0].as_py() for name in KEYS}
    row = keys | {"alert_budget": budget.alerts} | all_of(judged, budget)
    schema = tables.GOLD_PREDICTION_QUALITY.schema
    return pa.table([pa.array([row.get(field.name)]).cast(field.type) for field in schema], schema)
