"""Progress: a spinner's line has a rate, and a bar a total once there is one."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from rich.progress import Progress

from fraudlake.cli.parts import Parts
from fraudlake.cli.progress import Report


def test_a_stream_shows_rows_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    now = time.monotonic()
    report = Report("refine", SimpleNamespace(update=shown.append))
    monkeypatch.setattr("time.monotonic", lambda: now + 100)
    report.update("refine", 50_000, 3)
    (line,) = shown
    assert line.startswith("refine: refine 50,000 rows, 3 micro-batches, 5")
    assert line.endswith(" a second")


def test_a_bar_has_a_total_once_there_is_one() -> None:
    with Progress(disable=True) as bar:
        task = bar.add_task("features", total=None)
        assert str(Parts().render(bar.tasks[0])) == ""
        bar.update(task, completed=2, total=1_000)
        assert str(Parts().render(bar.tasks[0])) == "2 of 1,000"
