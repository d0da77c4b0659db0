"""The store of models: where MLflow keeps a lake's runs, its registered models and their files."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from fraudlake.errors import FraudlakeError

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class ModelStore:
    """MLflow's stores of runs (``tracking``) and of registered models (``registry``), as URIs.

    ``artifacts`` is where a new experiment keeps its models; None: where the store of runs wants.
    """

    tracking: str
    registry: str
    artifacts: str | None = None


WORKSPACE = ModelStore("databricks", "databricks-uc")
"""The workspace's MLflow, with Unity Catalog's registry."""


def model_store(lake: Lake) -> ModelStore:
    """Return a lake's store of models; on this machine a SQLite file, made on first use.

    Raises:
        FraudlakeError: the file cannot be read.
    """
    if lake.models is None:
        return WORKSPACE
    file = _file(lake.models)
    try:
        lake.models.mkdir(exist_ok=True)
        _make(file)
        # MLflow would try again for a minute, and fail with a stack trace.
        with contextlib.closing(sqlite3.connect(file)) as store:
            store.execute("PRAGMA schema_version")
    except (OSError, sqlite3.Error) as error:
        raise FraudlakeError(
            f"the model store {file} cannot be read ({error}): restore {lake.models} from a copy"
        ) from None
    uri = f"sqlite:///{file}"
    return ModelStore(uri, uri, (lake.models / "artifacts").as_uri())


def silence() -> None:
    """Let MLflow log nothing but errors; it reports its progress otherwise."""
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def _make(file: Path) -> None:
    """Make the SQLite file if it is not there.

    MLflow makes its tables in many steps, and refuses a file in which it was killed between two of them (seen in 3.17).
    So the file gets its name when all are there.
    """
    from mlflow import MlflowClient

    with FileLock(file.with_name(".lock")):
        if file.exists() and file.stat().st_size:
            return
        silence()
        draft = file.with_name(".draft.db")
        draft.unlink(missing_ok=True)
        MlflowClient(f"sqlite:///{draft}").search_experiments(max_results=1)
        draft.replace(file)


def has_models(lake: Lake) -> bool:
    """Return whether there is a store of models; where there is none, opening it would make it."""
    return lake.models is None or _file(lake.models).exists()


def _file(folder: Path) -> Path:
    return folder / "mlflow.db"
