"""A landed text is no command to the terminal that shows it."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from fraudlake import tables
from fraudlake_cli.output.terminal import Terminal, printable
from tests import plain_lake
from tests.conftest import FraudlakeHere

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\u200b\u2028x\udcff"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e\u200b\u2028x\udcff"


def test_control_characters_and_marks_of_direction_are_shown_as_escapes() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("Ünïcödé 漢字 🙂\n\tnext") == "Ünïcödé 漢字 🙂\n\tnext"


def test_a_text_cannot_command_the_terminal_but_the_programs_own_colours_do() -> None:
    written = io.StringIO()
    console = Terminal(file=written, force_terminal=True, color_system="standard", width=200, highlight=False)
    hostile, shown = "\x1b]0;owned\x1b[2J\x9b31m\u202e\u200bx", r"\x1b]0;owned\x1b[2J\x9b31m\u202e\u200bx"
    rows = Table.grid()
    rows.add_row(hostile)
    for renderable in (hostile, Text(hostile), rows):
        console.print(renderable, markup=False)
    console.print("[green]✓[/] done")
    *lines, last = written.getvalue().splitlines()
    assert [line.rstrip() for line in lines] == [shown] * 3
    assert last == "\x1b[32m✓\x1b[0m done"


def test_a_quarantined_row_is_listed_without_its_commands(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    root = plain_lake.make(tmp_path / "lake")
    row = {"_source_file": "part-0", "_position": 0, "accountId": "a\x1b[2Jb", "reasons": ["amount_is_positive"]}
    plain_lake.fill(root, tables.SILVER_QUARANTINE, {**row, "quarantined_at": datetime(2026, 1, 1, tzinfo=UTC)})
    ended = fraudlake_here("--lake", str(root), "quarantine")
    assert ended.returncode == 0, ended.stderr
    assert r"accountId=a\x1b[2Jb" in ended.stdout
