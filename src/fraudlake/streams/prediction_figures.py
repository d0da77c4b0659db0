"""Prediction figures: predictions and verdicts become the model's quality and drift, by day and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.model import drift, prediction_quality, published
from fraudlake.silver import verdicts
from fraudlake.streams import refresh
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.drift import Profile

_DAYS = list(prediction_quality.DAYS)


def stream(lake: Lake) -> Stream:
    """``gold_fraud_predictions`` and ``silver_verdicts`` → ``gold_prediction_quality`` and ``gold_feature_drift``."""

    def rows() -> DataFrame:
        predicted = lake.read_stream(tables.GOLD_FRAUD_PREDICTIONS).select(*_DAYS)
        decided = lake.read_stream(tables.SILVER_VERDICTS).selectExpr("date", "CAST(NULL AS STRING) AS model_version")
        return predicted.unionByName(decided)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        named = batch.where("model_version IS NOT NULL").distinct()
        decided_on = batch.where("model_version IS NULL").select("date").distinct()
        scored = lake.read(tables.GOLD_FRAUD_PREDICTIONS).select(*_DAYS)
        days = named.union(scored.join(decided_on, on="date", how="left_semi").distinct()).distinct()
        versions = [row["model_version"] for row in days.select("model_version").distinct().collect()]
        measure(lake, days, published.profiles(lake.read(tables.GOLD_MODELS), versions))

    return Stream(
        "prediction_quality",
        rows,
        write,
        reads=(tables.GOLD_FRAUD_PREDICTIONS, tables.SILVER_VERDICTS),
    )


def measure(lake: Lake, days: DataFrame, profiles: dict[str, Profile]) -> None:
    """Compute quality and drift of days and versions, and merge the figures into their tables."""

    def scored(dates: list[date]) -> DataFrame:
        return refresh.on_dates(lake.read(tables.GOLD_FRAUD_PREDICTIONS), dates)

    def quality(dates: list[date]) -> DataFrame:
        decided = verdicts.latest(refresh.on_dates(lake.read(tables.SILVER_VERDICTS), dates))
        return prediction_quality.prediction_quality(scored(dates), decided)

    def moved(dates: list[date]) -> DataFrame:
        indexes = drift.drift(scored(dates), profiles)
        return lake.session.createDataFrame(indexes, tables.GOLD_FEATURE_DRIFT.columns)

    judges = days.withColumn("judged_by", F.explode(F.array(*map(F.lit, prediction_quality.JUDGES))))
    refresh.refresh(lake, judges, tables.GOLD_PREDICTION_QUALITY, prediction_quality.KEYS, quality)
    named = days.withColumn("feature", F.explode(F.array(*map(F.lit, drift.MEASURED))))
    refresh.refresh(lake, named, tables.GOLD_FEATURE_DRIFT, (*_DAYS, "feature"), moved)
