"""The store of models: opens MLflow's store of a lake's runs and registered models, and repairs its paths."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from fraudlake.errors import FraudlakeError
from fraudlake.process import host

if TYPE_CHECKING:
    from fraudlake.lake import Lake

_ARTIFACTS = re.compile(r"file://.*/models/artifacts(?=/|$)")
"""A lake's folder of artifacts, at the beginning of a URI."""
_LOCATIONS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)
"""Tables of MLflow, and their columns with URIs of artifacts (seen in 3.17)."""


@dataclass(frozen=True)
class ModelStore:
    """MLflow's stores of runs (``tracking``) and of registered models (``registry``), as URIs.

    ``artifacts`` is the location for the models of a new experiment; None: the store's default.
    """

    tracking: str
    registry: str
    artifacts: str | None = None


WORKSPACE = ModelStore("databricks", "databricks-uc")
"""The workspace's MLflow, with Unity Catalog's registry."""


def model_store(lake: Lake) -> ModelStore:
    """Return a lake's store of models; a local one is a SQLite file, created on first use.

    Raises:
        FraudlakeError: the file cannot be read.
    """
    if lake.models is None:
        return WORKSPACE
    file = _file(lake.models)
    artifacts = (lake.models / "artifacts").as_uri()
    with _failing(lake.models):
        lake.models.mkdir(exist_ok=True)
        _make(file)
        # MLflow would retry for a minute, and then fail with a stack trace.
        with contextlib.closing(sqlite3.connect(file)) as store:
            _require_known(store, file)
            _correct_uris(store, artifacts)
    uri = f"sqlite:///{file}"
    return ModelStore(uri, uri, artifacts)


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the store in a folder to read it.

    Raises:
        FraudlakeError: it cannot be read.
    """
    with _failing(folder), contextlib.closing(sqlite3.connect(f"{_file(folder).as_uri()}?mode=ro", uri=True)) as store:
        _require_known(store, _file(folder))
        yield store


def require_known(lake: Lake) -> None:
    """Check that this MLflow can read a lake's store, if there is one on this machine.

    Raises:
        FraudlakeError: a newer MLflow has written it, or it cannot be read.
    """
    if lake.models is not None and has_models(lake):
        with reading(lake.models):
            pass


def _require_known(store: sqlite3.Connection, file: Path) -> None:
    """Refuse a store whose schema this MLflow does not know: MLflow would advise an upgrade, which fails (3.17)."""
    store.execute("PRAGMA schema_version")
    if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return
    for (revision,) in store.execute("SELECT version_num FROM alembic_version").fetchall():
        if not any(_migrations().glob(f"{revision}_*.py")):
            raise FraudlakeError(
                f"the model store {file} is of a newer MLflow than {metadata.version('mlflow')}, or of another program "
                f"(schema {revision}): install the fraudlake or MLflow that wrote it, or put a copy of {file.parent} "
                "from before the upgrade in its place"
            )


@contextlib.contextmanager
def _failing(folder: Path) -> Iterator[None]:
    """Turn a failure of the store in a folder into a one-line error."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise FraudlakeError(
            f"the model store {_file(folder)} cannot be read ({error}): restore {folder} from a copy"
        ) from None


def log_only_errors() -> None:
    """Have MLflow log errors only; by default it also logs its progress."""
    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    # MLflow also logs a failure of SQLite, with its stack trace, that it raises as an exception (seen in 3.17).
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def _make(file: Path) -> None:
    """Create the SQLite file if it does not exist.

    MLflow creates its tables in many steps, and refuses a file if it was killed between two of them (seen in 3.17). So
    the tables are created in a draft, which is renamed once it is complete. As they take seconds, this machine's cache
    has a copy for the next lake.
    """
    with FileLock(file.with_name(".lock")):
        if file.exists() and file.stat().st_size:
            return
        draft = file.with_name(".draft.db")
        empty = host.cache_folder() / f"models-{metadata.version('mlflow')}.db"
        if os.access(empty, os.R_OK):
            shutil.copyfile(empty, draft)
        else:
            _make_tables(draft)
            with contextlib.suppress(OSError):  # the cache may be read-only
                _copy_whole(draft, empty)
        draft.replace(file)


def _make_tables(draft: Path) -> None:
    from mlflow import MlflowClient

    log_only_errors()
    draft.unlink(missing_ok=True)
    MlflowClient(f"sqlite:///{draft}").search_experiments(max_results=1)
    with contextlib.closing(sqlite3.connect(draft)) as store:
        # MLflow's default experiment has the path of the current folder. MLflow makes it again when it opens the store.
        store.execute("DELETE FROM experiments")
        store.commit()


def _copy_whole(file: Path, name: Path) -> None:
    """Copy a file so that another process never sees a part of it."""
    copy = name.with_name(f"{name.name}.{os.getpid()}")
    try:
        shutil.copyfile(file, copy)
        copy.replace(name)
    finally:
        copy.unlink(missing_ok=True)


def _correct_uris(store: sqlite3.Connection, artifacts: str) -> None:
    """Correct the full URIs of a store's files, which are wrong after a lake was moved or copied."""
    for table, column in _LOCATIONS:
        # A store of an earlier MLflow lacks some of these tables and columns.
        if not store.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column)).fetchone():
            continue
        for (uri,) in store.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall():
            settled = _ARTIFACTS.sub(lambda _: artifacts, uri or "")
            if settled != (uri or ""):
                store.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (settled, uri))
    store.commit()


def _migrations() -> Path:
    """Return MLflow's folder of schema versions, a file each, without loading MLflow."""
    return Path(str(metadata.distribution("mlflow").locate_file("mlflow/store/db_migrations/versions")))


def has_models(lake: Lake) -> bool:
    """Return whether there is a store of models, without creating it."""
    return lake.models is None or _file(lake.models).exists()


def _file(folder: Path) -> Path:
    return folder / "mlflow.db"
