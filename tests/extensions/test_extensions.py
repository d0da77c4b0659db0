"""The diffs of the recipes apply as they are printed, and add what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .printed import DIFFS, RECIPES, ROOT, apply, copy_of_code, files_of


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code with all that is printed."""
    folder = copy_of_code(tmp_path_factory.mktemp("extended"))
    for title in DIFFS:
        apply(title, folder)
    return folder


def run(*arguments: str, extended: Path) -> None:
    paths = os.pathsep.join([str(extended / "src"), str(ROOT)])
    command = [sys.executable, "-m", *arguments]
    run = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_index_has_every_recipe_with_the_number_of_its_files() -> None:
    listed = re.findall(r"^\| \[(.+?)\]\(\S+\)[^|]* \| (\d+) \|$", (RECIPES / "index.md").read_text(), re.MULTILINE)
    counted = {title.lower(): len(files_of(title)) for title in DIFFS}
    assert {title: int(files) for title, files in listed} == {"a rule": 0} | counted


@pytest.mark.parametrize("title", DIFFS)
def test_a_diff_applies_by_itself_as_it_is_printed(tmp_path: Path, title: str) -> None:
    apply(title, copy_of_code(tmp_path))


def test_what_is_printed_is_written_as_the_rest(extended: Path) -> None:
    # What it leaves out is named by the paths of the project.
    shutil.copy(ROOT / "pyproject.toml", extended)
    config = ("--no-cache", str(extended / "src"))
    run("ruff", "check", *config, extended=extended)
    run("ruff", "format", "--check", *config, extended=extended)


@pytest.mark.long
def test_what_the_diffs_add_works(extended: Path) -> None:
    run("pytest", "-q", "-n", "0", "-m", "not stream", "tests/extensions/added.py", extended=extended)


@pytest.mark.long
@pytest.mark.stream
def test_what_the_diffs_add_works_in_spark(extended: Path) -> None:
    run("pytest", "-q", "-n", "0", "-m", "stream", "tests/extensions/added.py", extended=extended)
