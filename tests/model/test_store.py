from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml

from fraudlake.errors import FraudlakeError
from fraudlake.features import account_features
from fraudlake.lake import open_lake
from fraudlake.model.champion import publish
from fraudlake.model.classifier import Classifier, Logistic
from fraudlake.model.registry import Registry, Trained, published_champion
from fraudlake.model.store import has_models, model_store
from fraudlake.settings import Settings
from tests import plain_lake
from tests.conftest import FraudlakeHere

PATIENCE = 120
OPEN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from fraudlake.model.registry import Registry
from fraudlake.model.store import model_store

Registry(model_store(SimpleNamespace(models=Path(sys.argv[1]))), "model", "model").champion()
"""


@pytest.mark.slow
def test_a_store_in_another_place_has_its_models_there(tmp_path: Path) -> None:
    before: Any = SimpleNamespace(models=tmp_path / "models" / "artifacts" / "a lake" / "models")
    before.models.parent.mkdir(parents=True)
    assert register(before) == "1"
    after: Any = SimpleNamespace(models=tmp_path / "ein See #2" / "models")
    shutil.copytree(before.models.parent, after.models.parent)
    shutil.rmtree(tmp_path / "models")
    assert register(after) == "2"
    registry = Registry(model_store(after), "model", "model")
    assert [registry.load(version.number).number for version in registry.versions()] == ["2", "1"]
    assert not (tmp_path / "models").exists()
    with contextlib.closing(sqlite3.connect(after.models / "mlflow.db")) as store:
        assert not [line for line in store.iterdump() if "a%20lake" in line]


def of_newer_mlflow(folder: Path) -> None:
    """Give a store the schema of an MLflow that is not there yet."""
    folder.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as store:
        store.execute("CREATE TABLE alembic_version (version_num TEXT)")
        store.execute("INSERT INTO alembic_version VALUES ('ffffffffffff')")
        store.commit()


@pytest.mark.parametrize("command", [["model", "list"], ["model", "promote", "1"], ["train"], ["doctor"]])
def test_a_store_of_a_newer_mlflow_is_one_line_that_says_so_and_stays_as_it_is(
    tmp_path: Path, fraudlake_here: FraudlakeHere, command: list[str]
) -> None:
    root = plain_lake.make(tmp_path / "lake")
    of_newer_mlflow(root / "models")
    before = (root / "models" / "mlflow.db").read_bytes()
    done = fraudlake_here("--lake", str(root), *command)
    assert done.returncode == 1
    told = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if "of a newer MLflow than" in line]
    assert len(told) == 1 and "mlflow.db" in told[0]
    assert "put a copy of" in f"{done.stdout}{done.stderr}" and "db upgrade" not in f"{done.stdout}{done.stderr}"
    assert (root / "models" / "mlflow.db").read_bytes() == before


@pytest.mark.slow
def test_a_copy_of_the_store_from_before_the_upgrade_is_put_in_its_place_as_the_line_says(
    tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    lake = open_lake(Settings(lake=plain_lake.make(tmp_path / "lake")))
    assert lake.models is not None
    assert register(lake, "fraudlake") == "1"
    before = shutil.copytree(lake.models, tmp_path / "before the upgrade")
    with contextlib.closing(sqlite3.connect(lake.models / "mlflow.db")) as store:
        store.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        store.commit()
    told = fraudlake_here("--lake", str(lake.root), "model", "list").stderr
    (replaced,) = re.findall(r"put a copy of (.*) from before the upgrade in its place", told)

    shutil.rmtree(replaced)
    shutil.copytree(before, replaced)

    listed = fraudlake_here("--lake", str(lake.root), "--json", "model", "list")
    assert listed.returncode == 0, listed.stderr
    assert [version["number"] for version in json.loads(listed.stdout)["versions"]] == ["1"]


def test_the_page_says_that_pyfunc_runs_a_module_that_a_version_has(tmp_path: Path) -> None:
    register(SimpleNamespace(models=tmp_path / "models"))
    (description,) = (tmp_path / "models").rglob("MLmodel")
    flavour = yaml.safe_load(description.read_text())["flavors"]["python_function"]
    assert (description.parent / flavour["code"] / f"{flavour['loader_module']}.py").exists()
    page = " ".join((Path(__file__).parents[2] / "docs" / "how-to" / "model.md").read_text().split())
    _, named, after = page.partition('mlflow.pyfunc.load_model("models:/fraudlake/1")')
    assert named and "`pyfunc` runs the Python module that was stored with the version" in after
    assert "load only versions of a store that nobody else can write to" in after


def register(lake: Any, name: str = "model") -> str:
    """Register a model without training one, and return its version."""
    width = len(account_features.NAMES)
    model = Classifier(account_features.NAMES, Logistic([0.0] * width, [1.0] * width, [1.0] * width, 0.0), 1.0, 0.0)
    example = pd.DataFrame([[0.0] * width], columns=list(account_features.NAMES))
    trained = Trained(model, {"shapes": {}, "until": "2026-03-07"}, example, {}, "", {})
    return Registry(model_store(lake), name, "model").register(trained).number


@pytest.mark.slow
def test_the_champion_is_known_without_mlflow_if_it_is_the_model_that_was_published_last(tmp_path: Path) -> None:
    lake = open_lake(Settings(lake=tmp_path))
    assert published_champion(lake) is None  # and no store is made
    assert not has_models(lake)

    def promoted(number: str) -> Registry:
        registry = Registry.of(lake)
        registry.promote(number)
        return registry

    assert [register(lake, "fraudlake"), register(lake, "fraudlake")] == ["1", "2"]
    first = promoted("1").load("1")
    assert published_champion(lake) is None
    publish(lake, first)
    assert published_champion(lake) == first
    promoted("2")  # of the same bytes
    assert published_champion(lake) is None
    promoted("1")
    assert published_champion(lake) == first
    assert lake.models is not None
    files = {file: file.read_bytes() for file in lake.models.rglob("classifier.json")}
    for file in files:
        file.write_bytes(b"cut")
    assert published_champion(lake) is None
    for file, stored in files.items():
        file.write_bytes(stored)
    assert published_champion(lake) == first

    with contextlib.closing(sqlite3.connect(lake.models / "mlflow.db")) as store:
        store.execute("UPDATE model_versions SET creation_time = creation_time + 3600000")
        store.commit()
    assert published_champion(lake) is None  # number and bytes are the same, of a store that was made anew


def test_a_version_is_compared_by_the_classifier_that_was_not_fitted_on_its_test_rows(tmp_path: Path) -> None:
    lake: Any = SimpleNamespace(models=tmp_path / "models")
    width = len(account_features.NAMES)
    scoring, evaluated = (
        Classifier(account_features.NAMES, Logistic([0.0] * width, [1.0] * width, [weight] * width, 0.0), 1.0, 0.0)
        for weight in (1.0, 2.0)
    )
    example = pd.DataFrame([[0.0] * width], columns=list(account_features.NAMES))
    trained = Trained(scoring, {"shapes": {}, "until": "2026-03-07"}, example, {}, "", {}, evaluated=evaluated)
    registry = Registry(model_store(lake), "model", "model")

    assert registry.register(trained).number == "1"
    assert (registry.load("1").classifier, registry.evaluated("1")) == (scoring, evaluated)

    assert register(lake) == "2"  # as earlier fraudlakes registered versions
    assert registry.evaluated("2") == registry.load("2").classifier


def test_a_store_that_cannot_be_written_is_one_line_without_a_stack_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake: Any = SimpleNamespace(models=tmp_path / "models")
    register(lake)
    with contextlib.closing(sqlite3.connect(lake.models / "mlflow.db")) as store:
        store.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON registered_model_aliases BEGIN INSERT INTO absent VALUES (1); END"
        )

    with pytest.raises(FraudlakeError, match=r"the model store .*mlflow\.db failed \(.*no such table: main\.absent"):
        Registry(model_store(lake), "model", "model").promote("1")

    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_makes_the_store_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    lake: Any = SimpleNamespace(models=tmp_path / "models")
    (tmp_path / "cache").mkdir()
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", OPEN, str(lake.models)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        begun = time.monotonic()
        while not any(file.stat().st_size for file in lake.models.glob("*.db")):
            assert process.poll() is None and time.monotonic() - begun < PATIENCE
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not has_models(lake)

    assert Registry(model_store(lake), "model", "model").champion() is None
    assert [file.name for file in lake.models.glob("*.db")] == ["mlflow.db"]


@pytest.mark.slow
def test_a_second_store_is_the_empty_one_of_the_cache_which_has_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lakes: list[Any] = [SimpleNamespace(models=tmp_path / name) for name in ("first", "second")]
    for lake in lakes:
        model_store(lake)

    (empty,) = (tmp_path / "cache" / "fraudlake").iterdir()
    assert {(lake.models / "mlflow.db").read_bytes() for lake in lakes} == {empty.read_bytes()}
    assert str(tmp_path).encode() not in empty.read_bytes()
    assert Registry(model_store(lakes[1]), "model", "model").champion() is None
