"""A lake that needs two people, and commands of several users of one machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.process import host
from fraudlake.settings import Settings
from tests.conftest import FraudlakeHere
from tests.desk import small_lake

Command = Callable[..., Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small lake that needs two people."""
    made = small_lake.make(tmp_path / "lake")
    given = {"change": 2, "setting": "approvals", "value": "2", "author": "ann", "changed_at": small_lake.NOON}
    small_lake.write(made, tables.SILVER_DEFINITION, [given])
    return made


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(Settings(lake=root))


@pytest.fixture
def command(root: Path, fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command as a user of the system: return its JSON, or the message with which it is refused."""

    def run(user: str, *arguments: str) -> Any:
        monkeypatch.setattr(host, "system_user", lambda: user)
        done = fraudlake_here("--lake", str(root), "--json", *arguments)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return run
