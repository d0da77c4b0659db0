"""Notebook: prepares a lake's tables for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


def threshold(lake: Lake) -> float:
    """Return the probability from which the champion predicts fraud.

    Raises:
        FraudlakeError: the setting ``threshold`` is a budget, and there is no champion.
    """
    from fraudlake.model.published import Champion

    wanted = lake.settings.threshold
    return Champion().now(lake).threshold(wanted) if isinstance(wanted, str) else wanted


def labelled_predictions(lake: Lake) -> tuple[DataFrame, str]:
    """Return predictions with the labels that their model was trained on, and a sentence that names both.

    By Flink's label, fraud that only analysts recognise would count as an error of the model.

    Returns:
        The rows of ``gold_fraud_predictions`` of the version that scored last whose truth is known, as ``label``: by
        analysts' verdicts or chargebacks, if the version was trained on these, otherwise by Flink's label.
    """
    from pyspark.sql import functions as F

    from fraudlake import tables
    from fraudlake.model import prediction_quality, registry
    from fraudlake.silver import verdicts
    from fraudlake.streams import prediction_figures

    predictions = lake.read(tables.GOLD_FRAUD_PREDICTIONS)
    number = predictions.select(F.max_by("model_version", "scored_at")).collect()[0][0]
    learned = {version.number: version.labelled_by for version in registry.versions(lake)}
    judge, described = {
        "verdicts": ("verdict", "analysts' verdicts"),
        "chargebacks": (prediction_quality.CHARGEBACKS, "verdicts and age"),
    }.get(learned.get(number, ""), ("flink", "Flink's label"))
    labelled = prediction_quality.with_labels(
        predictions.where(F.col("model_version") == F.lit(number)),
        verdicts.latest(lake.read(tables.SILVER_VERDICTS)),
        judge,
        prediction_figures.genuine_until(lake) if judge == prediction_quality.CHARGEBACKS else None,
    )
    return labelled, f"version {number}, judged by {described}" if number else "no version has scored yet"
