"""Prediction quality: measures predictions by day, model version and source of the true label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.model.metrics import Budget, LabelledScores, measure_all
from fraudlake.times import literals

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

    from fraudlake.settings import Settings

DAYS = ("date", "model_version")
KEYS = (*DAYS, "judged_by")
_COMPARED = ("account_id", "amount", "label", "prediction", "probability")
_DEFAULT = Budget()
JUDGES = ("flink", "verdict")
"""The sources of the true label: Flink's label, and analysts' verdicts."""
CHARGEBACKS = "chargebacks"
"""The only source if labels are chargebacks: a verdict, or for old enough transactions "genuine" without one."""


def judge_of(settings: Settings) -> str:
    """Return the source that labels all predictions, not only those that somebody has reviewed."""
    return CHARGEBACKS if settings.are_chargebacks else JUDGES[0]


def prediction_quality(
    predictions: DataFrame, verdicts: DataFrame, budget: Budget = _DEFAULT, genuine_until: datetime | None = None
) -> DataFrame:
    """Compare predictions with Flink's label and with the verdicts, by day (UTC) and model version.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        budget: the number of alerts a day, and the cost of each.
        genuine_until: the time of the latest transaction that counts as genuine without a verdict; None: the labels
            come from :data:`JUDGES` instead.

    Returns:
        The columns of ``gold_prediction_quality``: :func:`metrics.measure_all` for the predictions with a known label.
    """
    labelled, *others = (
        with_labels(predictions, verdicts, judge, genuine_until)
        .withColumn("judged_by", F.lit(judge))
        .select(*KEYS, *_COMPARED)
        for judge in (JUDGES if genuine_until is None else (CHARGEBACKS,))
    )
    for other in others:
        labelled = labelled.unionByName(other)
    columns = tables.GOLD_PREDICTION_QUALITY.columns
    return labelled.groupBy(*KEYS).applyInArrow(lambda rows: _figures(rows, budget), columns)


def measure_group(
    predictions: pa.Table, verdicts: pa.Table, budget: Budget = _DEFAULT, genuine_until: datetime | None = None
) -> pa.Table:
    """Compute the rows of :func:`prediction_quality` for one day and version in this process.

    Args:
        predictions: rows of ``gold_fraud_predictions`` of one day and one version.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        budget: the number of alerts a day, and the cost of each.
        genuine_until: as for :func:`prediction_quality`.
    """
    decided = verdicts["verdict"].take(pc.index_in(predictions["transaction_id"], verdicts["transaction_id"]))
    figures = [tables.GOLD_PREDICTION_QUALITY.schema.empty_table()]
    labels = dict(zip(JUDGES, (predictions["label"], decided), strict=True))
    if genuine_until is not None:
        is_old = pc.less_equal(predictions["timestamp"], pa.scalar(genuine_until, pa.timestamp("us", "UTC")))
        by_age = pc.if_else(is_old, pa.scalar(False), pa.scalar(None, pa.bool_()))
        labels = {CHARGEBACKS: pc.coalesce(decided, by_age)}
    for judge, label in labels.items():
        labelled = predictions.drop_columns("label").append_column("label", label)
        rows = labelled.append_column("judged_by", pa.repeat(judge, len(labelled))).filter(label.is_valid())
        if len(rows):
            figures.append(_figures(rows, budget))
    return pa.concat_tables(figures)


def with_labels(
    predictions: DataFrame, verdicts: DataFrame, judge: str, genuine_until: datetime | None = None
) -> DataFrame:
    """Return the predictions that a source labels, with that truth as their ``label``.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.
        judge: the source of the truth, one of :data:`JUDGES` or :data:`CHARGEBACKS`.
        genuine_until: for chargebacks, as for :func:`prediction_quality`.
    """
    if judge != "flink":
        decided = verdicts.select("transaction_id", F.col("verdict").alias("label"))
        predictions = predictions.drop("label").join(decided, on="transaction_id", how="left")
    if judge == CHARGEBACKS and genuine_until is not None:
        by_age = F.when(F.col("timestamp") <= literals.instant(genuine_until), F.lit(False))
        predictions = predictions.withColumn("label", F.coalesce("label", by_age))
    return predictions.where(F.col("label").isNotNull())


def _figures(rows: pa.Table, budget: Budget) -> pa.Table:
    """Compute the row of a group."""
    accounts = rows["account_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    fraud, predicted, scores, amounts = (
        rows[name].to_numpy() for name in ("label", "prediction", "probability", "amount")
    )
    days = np.zeros(len(rows), np.int64)
    weights = np.ones(len(rows))
    labelled = LabelledScores(fraud, predicted, scores, amounts, accounts, days, weights)
    keys = {name: rows[name][0].as_py() for name in KEYS}
    row = keys | {"alert_budget": budget.alerts} | measure_all(labelled, budget)
    schema = tables.GOLD_PREDICTION_QUALITY.schema
    return pa.table([pa.array([row.get(field.name)]).cast(field.type) for field in schema], schema)
