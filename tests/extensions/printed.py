"""Printed: the diffs of the recipes in docs/how-to/extend, applied to a copy of ``src`` and the bundle."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "how-to" / "extend"
_DIFF = re.compile(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFS = {title: diff for page in sorted(RECIPES.glob("*.md")) for title, diff in _DIFF.findall(page.read_text())}
"""What is printed, by what it adds."""


def copy_of_code(folder: Path) -> Path:
    """Copy ``src`` and the bundle into a folder, and return the folder."""
    for name in ("src", "resources"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "databricks.yml", folder)
    return folder


def files_of(title: str) -> list[str]:
    """Return the files that a diff changes or adds."""
    return re.findall(r"^\+\+\+ b/(\S+)$", DIFFS[title], re.MULTILINE)


def apply(title: str, folder: Path) -> None:
    """Apply what is printed, as it is printed."""
    subprocess.run(["git", "apply", "-"], cwd=folder, input=DIFFS[title], text=True, check=True)
