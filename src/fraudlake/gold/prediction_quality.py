"""Prediction quality: scored transactions become one line of figures by day and model version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("date", "model_version")


def prediction_quality(predictions: DataFrame) -> DataFrame:
    """Judge the predictions whose label is known, by day (UTC) and model version.

    ``true_prediction_rate`` is the share of predictions that equal the label, as Databricks' article on Flink with
    Delta Lake has it. With rare fraud it flatters, so precision, recall, F1 and the area under the precision-recall
    curve (average precision: precision summed over the steps of recall) stand beside it; each is null where it is
    undefined.

    Returns:
        The columns of ``gold_prediction_quality``.
    """
    known = predictions.where(F.col("label").isNotNull())
    hit = F.col("true_positives")
    figures = known.groupBy(*KEYS).agg(
        F.count("*").alias("transactions"),
        F.count_if("label").alias("fraud"),
        (F.count_if(F.col("prediction") == F.col("label")) / F.count("*")).alias("true_prediction_rate"),
        F.count_if(F.col("prediction") & F.col("label")).alias("true_positives"),
        F.count_if("prediction").alias("predicted"),
    )
    return figures.join(_area_under_pr(known), on=list(KEYS), how="left").select(
        *KEYS,
        "transactions",
        "fraud",
        "true_prediction_rate",
        F.try_divide(hit, "predicted").alias("precision"),
        F.try_divide(hit, "fraud").alias("recall"),
        F.try_divide(2 * hit, F.col("predicted") + F.col("fraud")).alias("f1"),
        "area_under_pr",
    )


def _area_under_pr(known: DataFrame) -> DataFrame:
    best_first = (
        Window.partitionBy(*KEYS)
        .orderBy(F.desc("probability"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    steps = known.groupBy(*KEYS, "probability").agg(F.count("*").alias("n"), F.count_if("label").alias("hits"))
    precision = F.sum("hits").over(best_first) / F.sum("n").over(best_first)
    return (
        steps.withColumn("area", precision * F.col("hits"))
        .groupBy(*KEYS)
        .agg(F.try_divide(F.sum("area"), F.sum("hits")).alias("area_under_pr"))
    )
