"""The model: a Spark ML pipeline trained on Flink's label, kept and versioned in MLflow."""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.classification import GBTClassifier
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.functions import vector_to_array
from pyspark.sql import functions as F

from fraudlake.errors import FraudlakeError
from fraudlake.gold import features
from fraudlake.gold.prediction_quality import prediction_quality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHAMPION = "champion"
_ROWS_TAG = "silver_version"
_SEED = 1


@dataclass(frozen=True)
class Version:
    """A registered model: its number in the registry, and the version of silver that it was trained on."""

    number: str
    silver_version: str
    metrics: dict[str, float]


def fit(training: DataFrame) -> PipelineModel:
    """Train gradient-boosted trees on ``features.NAMES`` and ``label``.

    Raises:
        FraudlakeError: there is no fraud in the rows, or nothing else.
    """
    known = training.where(F.col("label").isNotNull()).withColumn("fraud", F.col("label").cast("double"))
    counts = known.agg(F.count("*").alias("rows"), F.count_if("label").alias("fraud")).first()
    assert counts is not None
    if counts["fraud"] in (0, counts["rows"]):
        raise FraudlakeError(
            f"cannot train: of {counts['rows']:,} labelled transactions {counts['fraud']:,} are fraud, "
            "both kinds are needed; land more of Flink's transactions first"
        )
    assembler = VectorAssembler(inputCols=list(features.NAMES), outputCol="features")
    trees = GBTClassifier(featuresCol="features", labelCol="fraud", maxIter=20, maxDepth=5, maxBins=256, seed=_SEED)
    return Pipeline(stages=[assembler, trees]).fit(known)


def score(rows: DataFrame, model: Any, threshold: float) -> DataFrame:
    """Add ``probability`` of fraud and ``prediction``, whether it reaches ``threshold``."""
    scored: DataFrame = model.transform(rows).withColumn("probability", vector_to_array(F.col("probability"))[1])
    return scored.withColumn("prediction", F.col("probability") >= threshold).drop("features", "rawPrediction")


def judge(scored: DataFrame) -> dict[str, float]:
    """Give the figures of :func:`prediction_quality` over all rows; those that are undefined are left out."""
    as_one = scored.withColumn("date", F.lit("1970-01-01").cast("date")).withColumn("model_version", F.lit(""))
    figures = prediction_quality(as_one).drop("date", "model_version").first()
    return {name: float(value) for name, value in figures.asDict().items() if value is not None} if figures else {}


class Registry:
    """Versions of a model in an MLflow store; the one that scores has the alias ``champion``."""

    def __init__(
        self,
        tracking_uri: str,
        registry_uri: str,
        name: str,
        *,
        experiment: str,
        artifacts: str | None,
        scratch: str | None,
    ) -> None:
        """Open the stores of runs and of registered models.

        Args:
            tracking_uri: of the store of runs.
            registry_uri: of the store of registered models.
            name: of the model.
            experiment: that its runs belong to.
            artifacts: where the models of a new experiment go; None: where the store wants.
            scratch: a folder that all of Spark's machines see, for a model on its way; None: there is only one machine.
        """
        import mlflow

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        mlflow.set_tracking_uri(tracking_uri)
        mlflow.set_registry_uri(registry_uri)
        self._mlflow, self._client = mlflow, mlflow.MlflowClient()
        self._name, self._experiment = name, experiment
        self._artifacts, self._scratch = artifacts, scratch

    def champion(self) -> Version | None:
        """Return the version that scores, if there is one."""
        from mlflow.exceptions import MlflowException

        try:
            found = self._client.get_model_version_by_alias(self._name, CHAMPION)
        except MlflowException:
            return None
        run = self._client.get_run(str(found.run_id))
        return Version(str(found.version), found.tags.get(_ROWS_TAG, ""), dict(run.data.metrics))

    def register(self, model: PipelineModel, metrics: dict[str, float], params: dict[str, Any]) -> Version:
        """Log a model with its figures, register it and make it the champion."""
        import mlflow.spark

        if self._client.get_experiment_by_name(self._experiment) is None:
            self._client.create_experiment(self._experiment, artifact_location=self._artifacts)
        self._mlflow.set_experiment(self._experiment)
        # MLflow writes what it does to standard error, whatever the log level.
        with contextlib.redirect_stderr(io.StringIO()), self._mlflow.start_run():
            self._mlflow.log_params(params)
            self._mlflow.log_metrics(metrics)
            # Named requirements spare MLflow loading the model in another process to infer them.
            logged = mlflow.spark.log_model(
                model,
                artifact_path="model",
                registered_model_name=self._name,
                pip_requirements=["pyspark"],
                dfs_tmpdir=self._scratch,
            )
        number = str(logged.registered_model_version)
        self._client.set_model_version_tag(self._name, number, _ROWS_TAG, str(params[_ROWS_TAG]))
        self._client.set_registered_model_alias(self._name, CHAMPION, number)
        return Version(number, str(params[_ROWS_TAG]), metrics)

    def load(self, version: Version) -> Any:
        """Load a registered version as a Spark ML pipeline."""
        import mlflow.spark

        return mlflow.spark.load_model(f"models:/{self._name}/{version.number}", dfs_tmpdir=self._scratch)
