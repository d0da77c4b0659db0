"""Prediction quality: scored transactions become figures by day, model version and source of the true label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAYS = ("date", "model_version")
KEYS = (*DAYS, "judged_by")
JUDGES = ("flink", "verdict")
"""The source of the true label: Flink's label, or an analyst's verdict."""


def prediction_quality(predictions: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Compare predictions with Flink's label and with the verdicts, by day (UTC) and model version.

    Args:
        predictions: rows of ``gold_fraud_predictions``.
        verdicts: ``transaction_id, verdict``, at most one row per transaction.

    Returns:
        The columns of ``gold_prediction_quality``: :func:`figures` by :data:`KEYS`.
    """
    by_flink = predictions.withColumn("judged_by", F.lit("flink"))
    decided = verdicts.select("transaction_id", F.col("verdict").alias("label"))
    by_verdict = predictions.drop("label").join(decided, on="transaction_id", how="inner")
    both = by_flink.unionByName(by_verdict.withColumn("judged_by", F.lit("verdict")))
    return figures(both, KEYS)


def figures(predictions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Compare the predictions whose label is known with it, by ``keys``.

    ``true_prediction_rate`` is the share of predictions that equal the label, as Databricks' article on Flink with
    Delta Lake defines it. Where fraud is rare it is close to 1 for any model, so the result also has precision, recall,
    F1 and the area under the precision-recall curve (average precision: precision summed over the steps of recall).
    Each is null where it is undefined.
    """
    known = predictions.where(F.col("label").isNotNull())
    hit = F.col("true_positives")
    counted = known.groupBy(*keys).agg(
        F.count("*").alias("transactions"),
        F.count_if("label").alias("fraud"),
        (F.count_if(F.col("prediction") == F.col("label")) / F.count("*")).alias("true_prediction_rate"),
        F.count_if(F.col("prediction") & F.col("label")).alias("true_positives"),
        F.count_if("prediction").alias("predicted"),
    )
    return counted.join(_area_under_pr(known, keys), on=list(keys), how="left").select(
        *keys,
        "transactions",
        "fraud",
        "true_prediction_rate",
        F.try_divide(hit, "predicted").alias("precision"),
        F.try_divide(hit, "fraud").alias("recall"),
        F.try_divide(2 * hit, F.col("predicted") + F.col("fraud")).alias("f1"),
        "area_under_pr",
    )


def _area_under_pr(known: DataFrame, keys: Sequence[str]) -> DataFrame:
    best_first = (
        Window.partitionBy(*keys)
        .orderBy(F.desc("probability"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    steps = known.groupBy(*keys, "probability").agg(F.count("*").alias("n"), F.count_if("label").alias("hits"))
    precision = F.sum("hits").over(best_first) / F.sum("n").over(best_first)
    return (
        steps.withColumn("area", precision * F.col("hits"))
        .groupBy(*keys)
        .agg(F.try_divide(F.sum("area"), F.sum("hits")).alias("area_under_pr"))
    )
