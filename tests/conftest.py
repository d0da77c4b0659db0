"""What the tests share: settings without the environment, lakes in temporary folders, and Flink's own files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fraudlake import settings
from fraudlake.settings import Settings

# Spark hands timestamps to Python as naive local times: let local be UTC, wherever the tests run.
os.environ["TZ"] = "UTC"
time.tzset()

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


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Open a lake in this test's folder; every call opens it anew, with other settings where given."""
    from fraudlake.lake import Lake

    def open_(folder: str = "lake", **values: Any) -> Lake:
        return Lake(Settings(lake=tmp_path / folder, **values))

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
