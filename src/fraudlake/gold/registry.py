"""The registry: versions of a model in an MLflow store, which of them scores, and which may take over."""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError
from fraudlake.gold import features

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pyspark.ml import PipelineModel

    from fraudlake.gold.drift import Profile

CHAMPION, CHALLENGER = "champion", "challenger"
_TRAINED_ON, _JUDGED_FROM, _REPLACED = "trained_on", "judged_from", "replaced"
_ABSENT = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND"}


@dataclass(frozen=True)
class Version:
    """A registered model: what it was trained on, from when on it was judged, its figures and its aliases."""

    number: str
    trained_on: dict[str, Any]
    judged_from: str
    metrics: dict[str, float]
    aliases: tuple[str, ...]
    replaced: str | None
    """The champion that it took over from."""


@dataclass(frozen=True)
class Model:
    """A version, loaded: its pipeline and the shapes of the data that it was trained on."""

    number: str
    pipeline: Any
    profile: Profile


@dataclass(frozen=True)
class Trained:
    """What training leaves, to be kept. ``trained_on`` tells whether a training would only repeat it."""

    pipeline: PipelineModel
    profile: Profile
    example: pd.DataFrame
    trained_on: dict[str, Any]
    judged_from: str
    metrics: dict[str, float]
    params: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)


class Registry:
    """Versions of a model in an MLflow store, and the aliases that say which of them scores."""

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
            name: of the model; in a Unity Catalog it has three levels.
            experiment: that its runs belong to.
            artifacts: where the models of a new experiment go; None: where the store wants.
            scratch: a folder that all of Spark's machines see, for a model on its way; None: there is only one machine.
        """
        import mlflow

        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.ERROR)
        self._again = partial(
            Registry, tracking_uri, registry_uri, name, experiment=experiment, artifacts=artifacts, scratch=scratch
        )
        mlflow.set_tracking_uri(tracking_uri)
        mlflow.set_registry_uri(registry_uri)
        self._mlflow, self._client = mlflow, mlflow.MlflowClient()
        self._uri, self._name, self._experiment = tracking_uri, name, experiment
        self._artifacts, self._scratch = artifacts, scratch
        self._files = artifacts or tracking_uri

    def __reduce__(self) -> tuple[Any, ...]:
        """Open the stores anew in another process: that of foreachBatch under Spark Connect knows no MLflow store."""
        return self._again, ()

    def champion(self) -> Version | None:
        """Return the version that scores, if there is one."""
        return self._by_alias(CHAMPION)

    def challenger(self) -> Version | None:
        """Return the version that may take over, if there is one."""
        return self._by_alias(CHALLENGER)

    def required_champion(self) -> Version:
        """Return the version that scores.

        Raises:
            FraudlakeError: there is none yet.
        """
        champion = self.champion()
        if champion is None:
            raise FraudlakeError(f"there is no model '{self._name}' to score with: run 'fraudlake train' first")
        return champion

    def version(self, number: str) -> Version:
        """Return a version by its number.

        Raises:
            FraudlakeError: there is no such version.
        """
        with self._store():
            found = self._present(lambda: self._client.get_model_version(self._name, number))
        if found is None:
            raise FraudlakeError(f"model '{self._name}' has no version {number}: 'fraudlake model list' shows them")
        return self._version(found)

    def versions(self) -> list[Version]:
        """Return all versions, the newest first."""
        with self._store():
            found = self._client.search_model_versions(f"name = '{self._name}'")
        return [self.version(number) for number in sorted((str(one.version) for one in found), key=int, reverse=True)]

    def register(self, trained: Trained) -> Version:
        """Log a model with its figures and register it, as the challenger."""
        import mlflow.spark
        from mlflow.models import infer_signature

        signature = infer_signature(trained.example, trained.example[[]].assign(prediction=0.0))
        # MLflow writes what it does to standard error, whatever the log level.
        with self._store(), contextlib.redirect_stderr(io.StringIO()):
            if self._client.get_experiment_by_name(self._experiment) is None:
                self._client.create_experiment(self._experiment, artifact_location=self._artifacts)
            self._mlflow.set_experiment(self._experiment)
            with self._mlflow.start_run():
                self._mlflow.log_params(trained.params)
                self._mlflow.log_metrics(trained.metrics)
                for name, figure in trained.figures.items():
                    self._mlflow.log_figure(figure, name)
                # Named requirements spare MLflow loading the model in another process to infer them.
                logged = mlflow.spark.log_model(
                    trained.pipeline,
                    artifact_path="model",
                    registered_model_name=self._name,
                    signature=signature,
                    input_example=trained.example,
                    metadata={"profile": json.dumps(trained.profile)},
                    pip_requirements=["pyspark"],
                    dfs_tmpdir=self._scratch,
                )
            number = str(logged.registered_model_version)
            tags = {_TRAINED_ON: json.dumps(trained.trained_on), _JUDGED_FROM: trained.judged_from}
            for name, value in tags.items():
                self._client.set_model_version_tag(self._name, number, name, value)
            self._client.set_registered_model_alias(self._name, CHALLENGER, number)
        return self.version(number)

    def promote(self, number: str) -> Version:
        """Make a version the champion, and note which one it replaced."""
        before, promoted = self.champion(), self.version(number)
        with self._store():
            if before is not None and before.number != number:
                self._client.set_model_version_tag(self._name, number, _REPLACED, before.number)
            self._client.set_registered_model_alias(self._name, CHAMPION, number)
            if CHALLENGER in promoted.aliases:
                self._client.delete_registered_model_alias(self._name, CHALLENGER)
        return self.version(number)

    def rollback(self) -> Version:
        """Make the version the champion that the champion replaced.

        Raises:
            FraudlakeError: it replaced none.
        """
        champion = self.required_champion()
        if champion.replaced is None:
            raise FraudlakeError(
                f"version {champion.number} of model '{self._name}' replaced none: nothing to go back to"
            )
        with self._store():
            self._client.set_registered_model_alias(self._name, CHAMPION, champion.replaced)
        return self.version(champion.replaced)

    def load(self, number: str) -> Model:
        """Load a version.

        Raises:
            FraudlakeError: its files cannot be read, or it wants other features than there are.
        """
        import mlflow.spark
        from mlflow.models import get_model_info

        uri = f"models:/{self._name}/{number}"
        what = f"version {number} of model '{self._name}'"
        otherwise = "or go back with 'fraudlake model rollback'"
        self.version(number)
        try:
            info = get_model_info(uri)
        except Exception as error:  # whatever MLflow, a file system or a YAML parser raises
            raise FraudlakeError(
                f"{what} cannot be read ({_line(error)}): restore its files in {self._files}, {otherwise}"
            ) from None
        wanted = info.signature.inputs.input_names() if info.signature and info.signature.inputs else []
        if set(wanted) != set(features.NAMES):
            strange = sorted(set(wanted) ^ set(features.NAMES))
            raise FraudlakeError(
                f"{what} does not fit the features of this fraudlake (they differ in {', '.join(strange)}): "
                f"train a new one and promote it with 'fraudlake model promote --force', {otherwise}"
            )
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                pipeline = mlflow.spark.load_model(uri, dfs_tmpdir=self._scratch)
            profile = json.loads((info.metadata or {})["profile"])
        except Exception as error:
            raise FraudlakeError(
                f"{what} cannot be loaded ({_line(error)}): restore its files in {self._files}, {otherwise}"
            ) from None
        return Model(number, pipeline, profile)

    def _by_alias(self, alias: str) -> Version | None:
        with self._store():
            found = self._present(lambda: self._client.get_model_version_by_alias(self._name, alias))
        return None if found is None else self.version(str(found.version))

    def _version(self, found: Any) -> Version:
        with self._store():
            run = self._client.get_run(str(found.run_id))
        return Version(
            str(found.version),
            json.loads(found.tags.get(_TRAINED_ON, "{}")),
            found.tags.get(_JUDGED_FROM, ""),
            dict(run.data.metrics),
            tuple(sorted(found.aliases)),
            found.tags.get(_REPLACED),
        )

    def _present(self, ask: Any) -> Any:
        """Ask the store for something that may not be there."""
        from mlflow.exceptions import MlflowException

        try:
            return ask()
        except MlflowException as error:
            if error.error_code in _ABSENT:
                return None
            raise

    @contextlib.contextmanager
    def _store(self) -> Iterator[None]:
        """Say in one line that the store does not answer, or refuses."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            raise FraudlakeError(
                f"the model store {self._uri} does not do what it is asked ({_line(error)}): check that it is there "
                "and may be read and written"
            ) from error


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
