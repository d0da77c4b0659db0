"""Progress: a spinner's line has a rate, and a bar a total once there is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from fraudlake import tables
from fraudlake.streams import stream
from fraudlake.streams.stream import Done, Stream
from fraudlake.tables import Table
from fraudlake_cli.output.parts import Parts
from fraudlake_cli.output.progress import Report, run_streams


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


def a_stream(step: str, read: Table, *written: Table) -> Stream:
    nothing: Any = None
    return Stream(step, nothing, nothing, reads=(read,), writes=dict.fromkeys(written, ""))


def test_streams_start_together_but_one_that_reads_what_another_writes_comes_after_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    together: list[list[str]] = []

    def run(lake: Any, streams: list[Stream], *_: object) -> list[Done]:
        together.append([one.step for one in streams])
        return [Done(one.step, 3, 1) for one in streams]

    monkeypatch.setattr(stream, "run", run)
    lake: Any = None
    streams = [
        a_stream("days", tables.SILVER_TRANSACTIONS),
        a_stream("score", tables.SILVER_TRANSACTIONS, tables.GOLD_FRAUD_PREDICTIONS),
        a_stream("quality", tables.GOLD_FRAUD_PREDICTIONS),
        a_stream("windows", tables.SILVER_ALERTS),
    ]
    done = run_streams(lake, streams, "available-now")
    assert together == [["days", "score"], ["quality", "windows"]]
    assert [one.step for one in done] == ["days", "score", "quality", "windows"]
    assert [line.split()[1:4] for line in capfd.readouterr().err.splitlines()] == [
        [one.step, "3", "rows"] for one in streams
    ]

    together.clear()
    run_streams(lake, streams, "continuous")
    assert together == [["days", "score", "quality", "windows"]]
