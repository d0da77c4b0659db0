"""The page on sizing names every module that brings rows of Spark into the process of a command."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE, PAGE = ROOT / "src", ROOT / "docs" / "explanation" / "sizing.md"
_COLLECTS = re.compile(r"\.(collect|toArrow|toPandas|toLocalIterator)\(\)")


def test_every_module_that_collects_rows_is_in_the_table() -> None:
    section = PAGE.read_text().partition("## What passes through one process")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([a-z_/]+)`", row[2])}
    files = {
        file: file.relative_to(CODE).with_suffix("").as_posix().removeprefix("fraudlake/")
        for file in CODE.rglob("*.py")
    }
    collecting = {name for file, name in files.items() if _COLLECTS.search(file.read_text())}
    assert len(collecting) > 20
    assert collecting - named == set()
    assert named - set(files.values()) == set()
