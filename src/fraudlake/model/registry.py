"""The registry: manages the versions of a model in MLflow, and which of them are champion and challenger."""

from __future__ import annotations

import contextlib
import io
import json
import math
import sqlite3
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fraudlake.errors import FraudlakeError, first_line
from fraudlake.features import account_features
from fraudlake.model import classifier, published
from fraudlake.model.classifier import Classifier
from fraudlake.model.published import Model
from fraudlake.model.store import has_models, log_only_errors, model_store, reading

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fraudlake.lake import Lake
    from fraudlake.model.drift import Profile
    from fraudlake.model.store import ModelStore

CHAMPION = "champion"
CHALLENGER = "challenger"
LABELLED_BY = "labelled_by"
"""The parameter of a run with the source of its labels."""
AREA = "area_under_pr"
BASELINE = "baseline_"
"""The metric by which versions are compared, and the prefix of the baseline's metrics."""
NEW_KINDS = "of_new_kinds"
"""The suffix of metrics of fraud whose kind appeared after the training."""
_TRAINED_ON = "trained_on"
_TESTED_FROM = "tested_from"
_REPLACED = "replaced"
_PROFILE = "profile"
_EVALUATED = "evaluated.json"
_LOADER = Path(classifier.__file__).stem
_ABSENT = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE", "NOT_FOUND"}


class OutdatedModelError(FraudlakeError):
    """This fraudlake cannot score with a version, even if all of its files are intact."""


class NoModelError(FraudlakeError):
    """The model has no champion yet."""


@dataclass(frozen=True)
class Version:
    """A registered version: its training data, the beginning of its test rows (UTC), its metrics and its aliases."""

    number: str
    trained_on: dict[str, Any]
    tested_from: str
    metrics: dict[str, float]
    aliases: tuple[str, ...]
    replaced: str | None
    """The version that was the champion before it."""
    labelled_by: str = "flink"
    """The source of the labels that it learned, such as ``flink``, or ``verdicts`` of analysts."""
    trained_at: datetime | None = None
    """When it was registered (UTC)."""

    @classmethod
    def of(
        cls,
        number: str,
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        params: Mapping[str, str],
        aliases: Iterable[str],
        created: int,
    ) -> Version:
        """Return a version from MLflow's records of it, created at a time in milliseconds, and of its run."""
        return cls(
            number,
            json.loads(tags.get(_TRAINED_ON, "{}")),
            tags.get(_TESTED_FROM, ""),
            dict(metrics),
            tuple(sorted(aliases)),
            tags.get(_REPLACED),
            params.get(LABELLED_BY, "flink"),
            datetime.fromtimestamp(created / 1000, UTC),
        )

    @property
    def weakness(self) -> str | None:
        """A sentence if it is worse on its test rows than its baseline, a logistic regression; None: it is not."""
        area, baseline = (self.metrics.get(f"{of}{AREA}") for of in ("", BASELINE))
        if area is None or baseline is None or area >= baseline:
            return None
        figures = f"area under PR {area:.4f} against {baseline:.4f}"
        return f"version {self.number} is below its own baseline, a logistic regression ({figures})"


@dataclass(frozen=True)
class Trained:
    """A trained model with everything that is registered with it.

    ``classifier`` scores. It may be fitted on the test rows; versions are compared by ``evaluated``, which is not.
    ``trained_on`` are the table versions and the settings: training again with equal values would give the same model.
    """

    classifier: Classifier
    profile: Profile
    example: pd.DataFrame
    trained_on: dict[str, Any]
    tested_from: str
    metrics: dict[str, float]
    params: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    evaluated: Classifier | None = None


class Registry:
    """Versions of a model in an MLflow store, and the aliases ``champion`` and ``challenger``."""

    def __init__(
        self, store: ModelStore, name: str, experiment: str, computed: Collection[str] = account_features.NAMES
    ) -> None:
        """Open the stores of runs and of registered models.

        Args:
            store: the stores.
            name: the name of the model; in a Unity Catalog it has three levels.
            experiment: the name of the experiment that its runs belong to.
            computed: the names of the features that the lake computes.
        """
        import mlflow

        log_only_errors()
        mlflow.set_tracking_uri(store.tracking)
        mlflow.set_registry_uri(store.registry)
        self._mlflow = mlflow
        self._client = mlflow.MlflowClient()
        self._uri = store.tracking
        self._name = name
        self._experiment = experiment
        self._artifacts = store.artifacts
        self._computed = computed
        self._files = store.artifacts or store.tracking

    @classmethod
    def of(cls, lake: Lake) -> Registry:
        """Open a lake's registry."""
        settings = lake.settings
        experiment = settings.experiment or settings.model_name
        return cls(model_store(lake), settings.model_name, experiment, account_features.names(settings))

    def champion(self) -> Version | None:
        """Return the version that scores, if there is one."""
        return self._by_alias(CHAMPION)

    def challenger(self) -> Version | None:
        """Return the version that may become champion, if there is one."""
        return self._by_alias(CHALLENGER)

    def required_champion(self) -> Version:
        """Return the version that scores.

        Raises:
            NoModelError: no version is champion yet.
        """
        champion = self.champion()
        if champion is None:
            versions = self.versions()
            if versions:  # the newest waits for a second person, or its training was cut
                number = versions[0].number
                raise NoModelError(
                    f"version {number} does not score yet: approve its request in 'fraudlake approvals list', "
                    f"or run 'fraudlake model promote {number}'"
                )
            raise NoModelError(f"there is no model '{self._name}' to score with: run 'fraudlake train' first")
        return champion

    def version(self, number: str) -> Version:
        """Return a version by its number.

        Raises:
            FraudlakeError: there is no such version.
        """
        with self._store():
            registered = self._present(lambda: self._client.get_model_version(self._name, number))
        if registered is None:
            raise FraudlakeError(f"model '{self._name}' has no version {number}: 'fraudlake model list' shows them")
        return self._version(registered)

    def versions(self) -> list[Version]:
        """Return all versions, the newest first."""
        with self._store():
            registered = self._client.search_model_versions(f"name = '{self._name}'")
        numbers = sorted((str(version.version) for version in registered), key=int, reverse=True)
        return [self.version(number) for number in numbers]

    def register(self, trained: Trained) -> Version:
        """Log a model with its figures and register it, as the challenger."""
        # MLflow reports its progress on standard error, whatever the log level.
        with self._store(), contextlib.redirect_stderr(io.StringIO()):
            if self._client.get_experiment_by_name(self._experiment) is None:
                self._client.create_experiment(self._experiment, artifact_location=self._artifacts)
            self._mlflow.set_experiment(self._experiment)
            with self._mlflow.start_run() as run:
                self._mlflow.log_params(trained.params)
                self._mlflow.log_metrics(trained.metrics)
                for name, figure in trained.figures.items():
                    self._mlflow.log_figure(figure, name)
                if trained.evaluated is not None:
                    self._mlflow.log_text(trained.evaluated.to_bytes().decode(), _EVALUATED)
                logged = self._log(trained)
            # In a workspace the bundle creates the registered model: training may lack the right to create it.
            if self._present(lambda: self._client.get_registered_model(self._name)) is None:
                self._client.create_registered_model(self._name)
            tags = {_TRAINED_ON: json.dumps(trained.trained_on), _TESTED_FROM: trained.tested_from}
            # Logged models have ids from MLflow 3 on.
            by_id = {"model_id": logged.model_id} if getattr(logged, "model_id", None) else {}
            made = self._client.create_model_version(
                self._name, logged.model_uri, run_id=run.info.run_id, tags=tags, **by_id
            )
            self._client.set_registered_model_alias(self._name, CHALLENGER, made.version)
        return self.version(str(made.version))

    def _log(self, trained: Trained) -> Any:
        """Log a model so that ``mlflow.pyfunc`` loads it, without fraudlake and without unpickling anything."""
        import mlflow.pyfunc
        from mlflow.models import infer_signature

        with TemporaryDirectory() as folder:
            file = Path(folder) / "classifier.json"
            file.write_bytes(trained.classifier.to_bytes())
            return mlflow.pyfunc.log_model(
                artifact_path="model",
                loader_module=_LOADER,
                code_paths=[classifier.__file__],
                data_path=str(file),
                signature=infer_signature(trained.example, trained.classifier.predict(trained.example)),
                input_example=trained.example,
                metadata={_PROFILE: json.dumps(trained.profile)},
                pip_requirements=_requirements(),
            )

    def promote(self, number: str) -> Version:
        """Make a version the champion, and record which version it replaced."""
        before = self.champion()
        promoted = self.version(number)
        with self._store():
            if before is not None and before.number != number:
                self._client.set_model_version_tag(self._name, number, _REPLACED, before.number)
            self._client.set_registered_model_alias(self._name, CHAMPION, number)
            if CHALLENGER in promoted.aliases:
                self._client.delete_registered_model_alias(self._name, CHALLENGER)
        return self.version(number)

    def replaced(self) -> Version:
        """Return the version that the champion replaced.

        Raises:
            FraudlakeError: it replaced none.
        """
        champion = self.required_champion()
        if champion.replaced is None:
            raise FraudlakeError(
                f"version {champion.number} of model '{self._name}' did not replace a version: it is the first champion"
            )
        return self.version(champion.replaced)

    def rollback(self) -> Version:
        """Make the champion's predecessor the champion again.

        Raises:
            FraudlakeError: it replaced none.
        """
        replaced = self.replaced()
        with self._store():
            self._client.set_registered_model_alias(self._name, CHAMPION, replaced.number)
        return self.version(replaced.number)

    def load(self, number: str) -> Model:
        """Load a version.

        Raises:
            OutdatedModelError: fraudlake did not train it, or it needs features that the lake does not have.
            FraudlakeError: its files cannot be read.
        """
        uri = f"models:/{self._name}/{number}"
        what = f"version {number} of model '{self._name}'"
        self.version(number)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                model = _downloaded(uri, number)
        except Exception as error:  # any error of MLflow, a file system or a YAML parser
            raise FraudlakeError(
                f"{what} cannot be read ({first_line(error)}): restore its files in {self._files}, or go back with "
                "'fraudlake model rollback'"
            ) from None
        if model is None:
            raise OutdatedModelError(
                f"{what} was not trained by fraudlake, and cannot be used: train again with 'fraudlake train'"
            )
        missing = model.lacks(self._computed)
        if missing:
            raise OutdatedModelError(
                f"{what} needs features that the lake does not have ({', '.join(missing)}): "
                "train again with 'fraudlake train', or declare them with 'fraudlake features apply'"
            )
        return model

    def evaluated(self, number: str) -> Classifier:
        """Load the classifier of a version that was fitted without its test rows.

        Raises:
            FraudlakeError: as :meth:`load`.
        """
        model = self.load(number)
        with self._store():
            run = str(self._client.get_model_version(self._name, number).run_id)
            if not any(file.path == _EVALUATED for file in self._client.list_artifacts(run)):
                return model.classifier
            return Classifier.from_bytes(self._mlflow.artifacts.load_text(f"runs:/{run}/{_EVALUATED}").encode())

    def _by_alias(self, alias: str) -> Version | None:
        with self._store():
            registered = self._present(lambda: self._client.get_model_version_by_alias(self._name, alias))
        return None if registered is None else self.version(str(registered.version))

    def _version(self, registered: Any) -> Version:
        with self._store():
            run = self._client.get_run(str(registered.run_id))
        return Version.of(
            str(registered.version),
            registered.tags,
            run.data.metrics,
            run.data.params,
            registered.aliases,
            registered.creation_timestamp,
        )

    def _present(self, ask: Any) -> Any:
        """Return the answer of the store; None if the object does not exist."""
        from mlflow.exceptions import MlflowException

        try:
            return ask()
        except MlflowException as error:
            if error.error_code in _ABSENT:
                return None
            raise

    @contextlib.contextmanager
    def _store(self) -> Iterator[None]:
        """Turn a failure of the store into a one-line error."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except (MlflowException, OSError) as error:
            raise FraudlakeError(
                f"the model store {self._uri} failed ({first_line(error)}): check that it exists and can be read and "
                "written"
            ) from error


def versions(lake: Lake) -> list[Version]:
    """Return all versions of a lake's model, the newest first, without creating a missing store.

    A local store is read from MLflow's SQLite file directly, since importing MLflow takes seconds.

    Raises:
        FraudlakeError: the store cannot be read.
    """
    if lake.models is None:
        return Registry.of(lake).versions()
    if not has_models(lake):
        return []
    with reading(lake.models) as store:
        return list(_stored(store, lake.settings.model_name))


def published_champion(lake: Lake) -> Model | None:
    """Return the champion if a local store shows without MLflow that it is the version published last.

    Importing MLflow takes seconds. None: only MLflow can tell which version is the champion.

    Raises:
        FraudlakeError: the store cannot be read.
    """
    latest = published.latest(lake) if lake.models is not None and has_models(lake) else None
    if lake.models is None or latest is None:
        return None
    (model, published_at), name = latest, lake.settings.model_name
    with reading(lake.models) as store:
        registered = store.execute(
            "SELECT creation_time, storage_location FROM model_versions NATURAL JOIN "
            "(SELECT name, version FROM registered_model_aliases WHERE alias = ?) WHERE name = ? AND version = ?",
            (CHAMPION, name, model.number),
        ).fetchone()
    if registered is None or registered[0] > published_at.timestamp() * 1000:  # the store was created again
        return None
    file = Path(url2pathname(urlsplit(registered[1]).path)) / "data" / "classifier.json"
    is_same = file.is_file() and file.read_bytes() == model.stored
    return model if is_same and not model.lacks(account_features.names(lake.settings)) else None


def _stored(store: sqlite3.Connection, name: str) -> Iterator[Version]:
    """Read versions from MLflow's tables (seen in 3.17)."""
    registered = store.execute(
        "SELECT version, run_id, creation_time FROM model_versions WHERE name = ? "
        "AND current_stage <> 'Deleted_Internal' ORDER BY version DESC",
        (name,),
    )
    for number, run, created in registered.fetchall():
        version = (name, number)
        tags = store.execute("SELECT key, value FROM model_version_tags WHERE name = ? AND version = ?", version)
        metrics = store.execute("SELECT key, value, is_nan FROM latest_metrics WHERE run_uuid = ?", (run,))
        params = store.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,))
        aliases = store.execute("SELECT alias FROM registered_model_aliases WHERE name = ? AND version = ?", version)
        yield Version.of(
            str(number),
            dict(tags),
            {key: math.nan if is_nan else value for key, value, is_nan in metrics},
            dict(params),
            (alias for (alias,) in aliases),
            created,
        )


def _downloaded(uri: str, number: str) -> Model | None:
    """Return the model at an MLflow URI; None: it is not one of this classifier's models."""
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model as Logged

    with TemporaryDirectory() as folder:
        path = Path(download_artifacts(uri, dst_path=folder))
        logged = Logged.load(str(path))
        flavour = logged.flavors["python_function"]
        if flavour["loader_module"] != _LOADER:
            return None
        model = Model(number, (path / flavour["data"]).read_bytes(), json.loads((logged.metadata or {})[_PROFILE]))
    _ = model.classifier  # raises now if the bytes are not a classifier
    return model


def _requirements() -> list[str]:
    """Return the packages that loading a model without fraudlake needs."""
    package = "xgboost" if sys.platform == "darwin" else "xgboost-cpu"
    return ["numpy", "pandas", f"{package}=={metadata.version(package)}"]
