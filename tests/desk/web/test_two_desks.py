"""Two desks of one lake: who starts a second one under a name is told, since events cannot tell the two apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fraudlake_desk.web import server
from tests.conftest import FraudlakeHere

pytestmark = pytest.mark.slow


def test_a_second_desk_of_one_name_is_warned_until_the_first_is_gone(
    root: Path, fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warnings(*flags: str) -> list[str]:
        done = fraudlake_here("--lake", str(root), "desk", "--port", "0", *flags)
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    def serve_nothing(*_: Any) -> None:
        """End at once."""

    monkeypatch.setattr(server, "serve", serve_nothing)
    command = [sys.executable, "-m", "fraudlake_cli", "--lake", str(root), "desk", "--port", "0", "--analyst", "anna"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and "the desk of" in first.stdout.readline()
        (line,) = warnings("--analyst", "anna")
        assert line.startswith("another desk of this lake decides as anna, too: give each person a name with --analyst")
        assert warnings("--analyst", "bert") == warnings("--analyst", "anna", "--read-only") == []
        first.kill()
    assert warnings("--analyst", "anna") == []
