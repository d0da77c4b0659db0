"""What the tests share: settings without the environment, lakes in temporary folders, and Flink's own files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from fraudlake import settings
from fraudlake.lake import contents
from fraudlake.settings import Settings

# Spark hands timestamps to Python as naive local times: let local be UTC, wherever the tests run.
os.environ["TZ"] = "UTC"
time.tzset()

# How long an example takes says nothing on a machine that does other things, too.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

# A process that lives for seconds: its JVM's second compiler would take half of the processor time.
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}

FLINK = Path(__file__).parent.parent / "fixtures" / "flink"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(settings.ENV_PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session for transforms; lakes have sessions of their own in the same Spark."""
    from fraudlake.lake import session

    folder = tmp_path_factory.mktemp("spark")
    return session.start(Settings(lake=folder, shuffle_partitions=2), folder / "spark.log")


@pytest.fixture(scope="session")
def empty_lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with all its tables, to be copied: so many empty Delta tables take seconds to make."""
    from fraudlake.lake import open_lake

    return open_lake(Settings(lake=tmp_path_factory.mktemp("empty"))).root


@pytest.fixture
def lake(empty_lake: Path, tmp_path: Path) -> Callable[..., Any]:
    """Open a lake in this test's folder; every call opens it anew, with other settings where given."""
    from fraudlake.lake import Lake, open_lake

    def open_(folder: str = "lake", **values: Any) -> Lake:
        if not (tmp_path / folder / "lake.json").exists() and "clustering" not in values:
            shutil.copytree(empty_lake / "tables", tmp_path / folder / "tables")
        return open_lake(Settings(lake=tmp_path / folder, **values))

    return open_


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """The landing folder of :func:`lake`, empty."""
    folder = tmp_path / "lake" / "landing"
    folder.mkdir(parents=True)
    return folder


def land_flink(folder: Path, name: str) -> None:
    """Copy some of Flink's files into a landing folder, under the same name."""
    shutil.copytree(FLINK / name, folder / name.replace("/", "_"))


def run(lake: Path, *arguments: str) -> None:
    """Call the command line in this process."""
    from fraudlake.cli import cli

    cli.main(["--lake", str(lake), *arguments], standalone_mode=False)


@pytest.fixture(scope="session")
def twice(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A lake after the main job ran on Flink's files, and what it holds after each of two runs."""
    from fraudlake.lake import open_lake

    root = tmp_path_factory.mktemp("main") / "lake"
    (root / "landing").mkdir(parents=True)
    land_flink(root / "landing", "tutorial/int96")
    land_flink(root / "landing", "twodays")
    counts = []
    for _ in range(2):
        run(root, "run")
        lake = open_lake(Settings(lake=root))
        counts.append({table.name: lake.read(table).count() for table in contents.TABLES})
    return {"lake": lake, "counts": counts, "root": root}
