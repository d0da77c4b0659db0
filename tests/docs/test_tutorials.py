"""Tutorials, walked line by line in an empty folder, with what they say that one sees."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import FraudlakeHere
from tests.docs import markdown
from tests.docs.markdown import ROOT, Block


def walk(blocks: list[Block], folder: Path) -> str:
    """Run the shell of a page and write the files that it shows, in order; return what was printed."""
    programs = folder.parent / "bin"
    programs.mkdir()
    (programs / "fraudlake").symlink_to(Path(sys.executable).with_name("fraudlake"))
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    printed = []
    for block in blocks:
        if block.language == "toml":
            (folder / str(block.file)).write_text(block.text)
        elif block.language == "shell":
            ended = subprocess.run(
                ["bash", "-e", "-c", block.text],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, f"{block}\n{ended.stderr}"
            printed.append(ended.stdout + ended.stderr)
    return "\n".join(printed)


@pytest.mark.stream
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_own_columns(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    page = Path("docs/tutorials/own-columns.md")
    printed = walk([*markdown.blocks(page)], tmp_path / "empty")

    alerts, terminals = re.findall(r"has (\d+) alerts on (\d+) terminals", (ROOT / page).read_text())[0]
    assert f"{alerts} alerts" in printed
    assert f"{terminals} " in printed


@pytest.mark.stream
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_chargebacks_from_landing_to_a_promoted_model(tmp_path: Path) -> None:
    page = Path("docs/how-to/labels.md")
    before, heading, rest = (ROOT / page).read_text().partition("## From landing to a promoted model\n")
    text = heading + rest.partition("\n## ")[0]
    first = before.count("\n")
    section = [block for block in markdown.blocks(page) if first < block.line < first + text.count("\n")]
    (tmp_path / "empty").mkdir()
    printed = walk(section, tmp_path / "empty")

    learned = [
        [int(number.replace(",", "")) for number in re.findall(r"(?:on ([\d,]+) rows)", line)]
        for line in printed.splitlines()
        if "learned from verdicts, and what is genuine since it has none" in line
    ]
    assert [f"{sum(rows):,} payments" in text for rows in learned] == [True, True]
    (left_out,) = re.findall(r"leaves the other ([\d,]+) out", text)
    assert f"{left_out} transactions left out, younger than 20 days" in printed
    assert re.search(r"^\d+ +champion", printed, re.MULTILINE)


NOT_WALKED = {
    "fraudlake audit verify": "the events of the pictures have no hashes: tests/approvals/test_audit.py",
    "fraudlake define": "the lake has been made so",
    "fraudlake desk --open": "it serves until it is stopped: tests/desk/web",
    "fraudlake rules show": "it starts Spark: tests/detection",
}
"""Lines of the tutorials at the desk that are not walked here, and why."""


@pytest.mark.slow
def test_the_analysts_morning(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    runpy.run_path(str(ROOT / "docs/images/desk.py"))["make"](tmp_path / "lake")
    shell = [block.text for block in markdown.blocks(Path("docs/tutorials/analyst.md")) if block.language == "shell"]
    item = "ITEM"
    for line in "\n".join(shell).splitlines():
        if line.startswith(tuple(NOT_WALKED)):
            continue
        done = fraudlake_here(*shlex.split(line.replace("ITEM", item))[1:])
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if line == "fraudlake queue next --take":
            item = done.stdout.split()[1]

    assert item in (tmp_path / "dossier.html").read_text()
    assert (tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.slow
def test_the_change_of_a_rule(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    pictures = runpy.run_path(str(ROOT / "docs/images/desk.py"))
    pictures["make"](tmp_path / "lake")
    pictures["ask"](tmp_path / "lake")
    page = Path("docs/tutorials/rule-change.md")
    lines = [line for block in markdown.blocks(page) if block.language == "shell" for line in block.text.splitlines()]
    (listing,) = {line for line in lines if not line.startswith(tuple(NOT_WALKED))}

    printed = fraudlake_here(*shlex.split(listing)[1:]).stdout
    assert "waiting      rules: large_for_account; anna" in printed and "29 alerts fewer in four weeks" in printed
