"""The model: a labelled history becomes a Spark ML pipeline, found by a small search, and rows become scores.

A history is split by time, never at random: on its first part the candidates are fitted, the next one chooses the best
of them and calibrates it, the latest judges what was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import GBTClassifier, LogisticRegression
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import functions as F

from fraudlake.errors import FraudlakeError
from fraudlake.gold import features, prediction_quality
from fraudlake.rows import kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS = ("fitted", "chosen", "judged")
LEAST = 10
"""Transactions of each kind, fraud or not, that each part of a history must hold."""

_CHOSEN = 0.2
"""Share of the rows before the held-out ones that choose and calibrate."""
_SEED = 1
_MADE = ("features", "margin", "uncalibrated", "guess", "scaled", "rawPrediction")
"""Columns that a pipeline adds on its way to ``probability``."""

Progress = Callable[[int, int, str], None]
"""Called with the candidates fitted so far, all of them, and what is next."""


class TooLittleError(FraudlakeError):
    """There is too little to learn from."""


@dataclass(frozen=True)
class Candidate:
    """One way to learn: gradient-boosted trees of a depth and number, or a logistic regression."""

    algorithm: Literal["trees", "logistic"]
    depth: int = 0
    trees: int = 0

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.trees} trees of depth {self.depth}" if self.trees else "logistic regression"

    def stages(self) -> list[Any]:
        """Return the stages that turn ``features.NAMES`` into a ``margin``: the higher its second, the more fraud."""
        assembler = VectorAssembler(inputCols=list(features.NAMES), outputCol="features")
        if self.algorithm == "logistic":
            scaler = StandardScaler(inputCol="features", outputCol="scaled", withMean=True)
            return [assembler, scaler, _named(LogisticRegression(featuresCol="scaled", regParam=1e-4))]
        trees = GBTClassifier(
            maxDepth=self.depth,
            maxIter=self.trees,
            stepSize=0.2,
            maxBins=64,
            minInstancesPerNode=10,
            maxMemoryInMB=512,
            seed=_SEED,
        )
        return [assembler, _named(trees)]


def _named(classifier: Any) -> Any:
    classifier.setLabelCol("fraud").setWeightCol("weight")
    return classifier.setRawPredictionCol("margin").setProbabilityCol("uncalibrated").setPredictionCol("guess")


BASELINE = Candidate("logistic")
SEARCH = {"trees": (Candidate("trees", 4, 20), Candidate("trees", 6, 30)), "logistic": ()}
"""What is tried beside the baseline, by the setting ``algorithm``."""


@dataclass(frozen=True)
class Fitted:
    """What a search found: the best pipeline and the baseline's, and the area under PR that chose, by candidate."""

    pipeline: PipelineModel
    candidate: Candidate
    baseline: PipelineModel
    areas: dict[str, float]


@dataclass(frozen=True)
class Split:
    """Where a history is cut, and what its parts hold: (rows, frauds, first and last time in UTC) of each part."""

    chosen_from: datetime
    judged_from: datetime
    parts: dict[str, tuple[int, int, datetime, datetime]]

    def __str__(self) -> str:
        """Tell people which rows did what."""
        told = (
            f"{part} on {rows:,} rows ({fraud:,} fraud) of {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M}"
            for part, (rows, fraud, first, last) in self.parts.items()
        )
        return ", ".join(told)


def split(labelled: DataFrame, holdout: float) -> Split:
    """Cut a labelled history by time: the latest ``holdout`` of its rows judge.

    Args:
        labelled: ``timestamp`` and ``fraud`` (0.0 or 1.0).
        holdout: share of the rows.

    Raises:
        TooLittleError: a part holds too little fraud, or too little else.
    """
    shares = f"array({(1 - holdout) * (1 - _CHOSEN)}, {1 - holdout})"
    row = labelled.selectExpr(
        f"transform(approx_percentile(unix_micros(timestamp), {shares}), micros -> timestamp_micros(micros)) AS at"
    )
    cuts = row.collect()[0]["at"]
    if cuts is None:
        raise TooLittleError("cannot train: no transaction has a label; run 'ingest' and 'refine' first")
    found = (
        labelled.groupBy(_part(*cuts).alias("part"))
        .agg(F.count("*"), F.sum("fraud").cast("long"), F.min("timestamp"), F.max("timestamp"))
        .collect()
    )
    parts: dict[str, Any] = {part: tuple(row)[1:] for part in PARTS for row in found if row["part"] == part}
    for part in PARTS:
        rows, fraud = parts.get(part, (0, 0))[:2]
        if not LEAST <= fraud <= rows - LEAST:
            raise TooLittleError(
                f"cannot train: of the {rows:,} labelled transactions that a model is {part} on {fraud:,} are fraud, "
                f"and {LEAST} of both kinds are needed: land more transactions, or change --holdout or --labels"
            )
    return Split(cuts[0], cuts[1], parts)


def _part(chosen_from: datetime, judged_from: datetime) -> Any:
    return (
        F.when(F.col("timestamp") < chosen_from, "fitted")
        .when(F.col("timestamp") < judged_from, "chosen")
        .otherwise("judged")
    )


def search(labelled: DataFrame, cut: Split, algorithm: str, progress: Progress = lambda *_: None) -> Fitted:
    """Fit the candidates on the first part, choose the best and calibrate it on the second.

    Fraud is rare, so it weighs more: by the square root of how rare it is, which lets trees find it without drowning
    in false alarms. That bends the probabilities, so a logistic regression on the margin, fitted on rows that the trees
    have not seen (Platt scaling), bends them back.

    Args:
        labelled: ``timestamp``, ``fraud`` and :data:`features.NAMES`.
        cut: of that history.
        algorithm: a key of :data:`SEARCH`.
        progress: called before each candidate, and at the end.
    """
    rows, fraud = cut.parts["fitted"][:2]
    weight = F.when(F.col("fraud") == 1, F.lit((rows / fraud) ** 0.5)).otherwise(1.0)
    first = labelled.where(F.col("timestamp") < cut.chosen_from).withColumn("weight", weight)
    second = labelled.where(F.col("timestamp") >= cut.chosen_from).where(F.col("timestamp") < cut.judged_from)
    candidates = (BASELINE, *SEARCH[algorithm])
    with kept(first), kept(second):
        tried: list[tuple[float, Candidate, PipelineModel]] = []
        for number, candidate in enumerate(candidates):
            progress(number, len(candidates), str(candidate))
            pipeline = _calibrated(Pipeline(stages=candidate.stages()).fit(first), second)
            tried.append((judge(score(second, pipeline, 0.5))["area_under_pr"], candidate, pipeline))
        progress(len(candidates), len(candidates), "judging")
    # Of equals the first, which is the simplest.
    _, candidate, pipeline = max(tried[1:] or tried, key=lambda one: one[0])
    return Fitted(pipeline, candidate, tried[0][2], {str(one): area for area, one, _ in tried})


def _calibrated(fitted: PipelineModel, rows: DataFrame) -> PipelineModel:
    platt = LogisticRegression(
        featuresCol="margin", labelCol="fraud", regParam=1e-5, probabilityCol="probability", predictionCol="prediction"
    )
    return PipelineModel(stages=[*fitted.stages, platt.fit(fitted.transform(rows))])


def score(rows: DataFrame, pipeline: Any, threshold: float) -> DataFrame:
    """Add ``probability`` of fraud and ``prediction``, whether it reaches ``threshold``."""
    scored: DataFrame = pipeline.transform(rows).withColumn("probability", vector_to_array(F.col("probability"))[1])
    return scored.withColumn("prediction", F.col("probability") >= threshold).drop(*_MADE)


def judge(scored: DataFrame) -> dict[str, float]:
    """Give the figures of :mod:`prediction_quality` over all rows, by ``fraud``; undefined ones are left out."""
    known = scored.select("probability", "prediction", F.col("fraud").cast("boolean").alias("label"))
    figures = prediction_quality.figures(known.withColumn("all", F.lit(True)), ("all",)).drop("all").first()
    return {name: float(value) for name, value in figures.asDict().items() if value is not None} if figures else {}


def labelled(history: DataFrame, verdicts: DataFrame | None) -> DataFrame:
    """Add ``fraud`` (0.0 or 1.0): analysts' verdicts where they are given, and else Flink's label.

    Args:
        history: features with ``transaction_id`` and Flink's ``label``.
        verdicts: ``transaction_id, verdict``; rows without one are left out then.
    """
    if verdicts is None:
        return history.where("label IS NOT NULL").withColumn("fraud", F.col("label").cast("double"))
    decided = verdicts.select("transaction_id", F.col("verdict").cast("double").alias("fraud"))
    return history.join(decided, on="transaction_id", how="inner")
