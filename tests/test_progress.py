"""Progress: a spinner's line has a rate, and a bar a total once there is one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.progress import Progress

from fraudlake.cli.parts import Parts
from fraudlake.cli.progress import Report


def test_a_stream_shows_rows_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("time.monotonic", lambda: 0)
    report = Report("refine", SimpleNamespace(update=shown.append))
    monkeypatch.setattr("time.monotonic", lambda: 100)
    report.update("refine", 50_000, 3)
    report.update("detect", 40_000, 2)
    assert shown == [
        "refine: 50,000 rows, 3 micro-batches, 500 a second",
        "refine: detect 40,000 rows, 2 micro-batches, 400 a second",
    ]


def test_a_bar_has_a_total_once_there_is_one() -> None:
    with Progress(disable=True) as bar:
        task = bar.add_task("features", total=None)
        assert str(Parts().render(bar.tasks[0])) == ""
        bar.update(task, completed=2, total=1_000)
        assert str(Parts().render(bar.tasks[0])) == "2 of 1,000"


def test_a_step_of_parts_shows_how_many_are_done_of_all() -> None:
    shown: list[str] = []
    show = Report("optimize", SimpleNamespace(update=shown.append)).parts("table")
    show(1, 12)
    show(12, 12)
    assert shown == ["optimize 1/12 tables", "optimize 12/12 tables"]
