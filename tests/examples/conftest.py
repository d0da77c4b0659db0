from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import catalogue
from tests.conftest import FLINK
from tests.integration.shared_broker import broker

__all__ = ["broker", "flink", "printed"]

AS_USERS_HAVE_IT = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}
"""What the tests' Spark goes without (``tests.conftest.INTERPRETED``)."""

Printed = Callable[..., list[str]]


@pytest.fixture
def printed(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Run an example in this process, with the plans that a user's Spark makes; the lines that it printed."""

    def run(name: str, **given: Any) -> list[str]:
        main = catalogue.find(name).main
        session = spark.newSession()
        for setting, value in AS_USERS_HAVE_IT.items():
            session.conf.set(setting, value)
        at_hand = {"spark": session, "folder": tmp_path, "port": 0, "jdbc_url": None, **given}
        main(**{name: at_hand[name] for name in inspect.signature(main).parameters})
        return capsys.readouterr().out.splitlines()

    return run


def flink(name: str) -> list[str]:
    """The lines of Flink's own answer."""
    return (FLINK / "phrasebook" / f"{name}.txt").read_text().splitlines()
