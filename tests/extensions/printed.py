"""Printed: the diffs of CONTRIBUTING's extension points, applied to a copy of ``src``."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Extension points")[2].partition("\n## ")[0]
_DIFF = re.compile(r"^\*\*([^*]+)\*\*(?:(?!^\*\*).)*?^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFS = dict(_DIFF.findall(_SECTION))
"""What is printed, by what it adds."""


def copy_of_src(folder: Path) -> Path:
    """Copy ``src`` into a folder, and return the folder."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def apply(title: str, folder: Path) -> None:
    """Apply what is printed, as it is printed."""
    subprocess.run(["git", "apply", "-"], cwd=folder, input=DIFFS[title], text=True, check=True)
