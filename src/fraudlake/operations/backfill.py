"""Backfill: scores the transactions of a range of days again, under one version of the model."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.features import lake_features
from fraudlake.model import prediction_quality, predictions
from fraudlake.model.registry import Registry
from fraudlake.review.window import Window
from fraudlake.streams.prediction_figures import measure
from fraudlake.times import literals
from fraudlake.times.days import divided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.published import Model

_AT_ONCE = 2_000_000
"""Number of transactions that are scored at once; their features are computed from the whole history each time."""


def backfill(lake: Lake, first: date, last: date, number: str | None = None) -> tuple[str, int]:
    """Score the transactions of a range of dates (UTC, both included) under one version, by default the champion.

    Features are computed from the whole history. An earlier backfill of this version is replaced; what the stream
    predicted stays, as do predictions of other versions, since analysts have seen them with their reasons.

    Returns:
        The version and the number of transactions that have a prediction of it.

    Raises:
        UsageError: the range is empty.
        FraudlakeError: there is no such version, or it cannot be used.
    """
    if last < first:
        raise UsageError(f"--to {last} is before --from {first}")
    registry = Registry.of(lake)
    model = registry.load(number or registry.required_champion().number)
    with lake.exclusive("backfill"):
        days = lake.store.count_by_day(tables.SILVER_TRANSACTIONS, Window(first, last).sql)
        for part in divided(days, _AT_ONCE):
            scored = _scored(lake, model, part)
            lake.writer(tables.GOLD_FRAUD_PREDICTIONS).upsert(
                scored, ("transaction_id", *prediction_quality.DAYS), part
            )
        if days:
            measure(lake, {(day, model.number) for day in days}, {model.number: model.profile})
        return model.number, sum(days.values())


def _scored(lake: Lake, model: Model, days: list[date]) -> DataFrame:
    """Return the predictions of consecutive days that the stream has not made, in the columns of the table."""
    in_days = F.col("date").between(literals.day(days[0]), literals.day(days[-1]))
    transactions = lake.read(tables.SILVER_TRANSACTIONS).where(F.col("date") <= literals.day(days[-1]))
    verdicts = lake_features.verdicts_of(transactions, lake.read(tables.SILVER_VERDICTS), lake.settings)
    payloads = lake_features.compute_history(transactions, lake.settings, decided_rows=verdicts)
    computed = lake_features.unpacked(payloads, lake.settings).where(in_days)
    score = predictions.scorer(model, lake.settings.threshold, "backfill", datetime.now(UTC), lake.declared_features)
    streamed = lake.read(tables.GOLD_FRAUD_PREDICTIONS).where(in_days & (F.col("scored_from") != "backfill"))
    of_stream = streamed.where(F.col("model_version") == model.number).select("transaction_id")
    computed = computed.join(of_stream, on="transaction_id", how="left_anti")
    return computed.mapInArrow(score, lake.table(tables.GOLD_FRAUD_PREDICTIONS).columns)
