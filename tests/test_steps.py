"""``run --steps``: some steps in one process, each as its own command."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from fraudlake.settings import Settings
from fraudlake.streams.stream import Done
from fraudlake_cli import app as program
from fraudlake_cli.app import App, options
from fraudlake_cli.commands import steps
from tests.conftest import FraudlakeHere

ALL = "ingest, refine, disputes, detect, aggregate, train, score, optimize, status"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--steps", ""), f"--steps names no step: give one or more of {ALL.replace(' ', '')}"),
        (("--steps", "ingest,prefine"), f"--steps: there is no step 'prefine'; there are {ALL}"),
        (("--steps", "ingest,,refine"), f"--steps: there is no step ''; there are {ALL}"),
        (("--steps", "ingest,refine,ingest"), "--steps: ingest is listed twice"),
        (("--steps", "score,train"), "--steps: score,train is not the order of a run: give train,score"),
        (("--steps", "refine,detect", "--holdout", "0.2"), "--holdout is a flag of train: name it in --steps"),
        (("--steps", "refine", "--retry-rejected"), "--retry-rejected is a flag of ingest: name it in --steps"),
        (("--retention", "1 day"), "--retention is a flag of optimize: name it in --steps"),
    ],
)
def test_what_names_no_part_of_a_run_is_wrong_use_and_makes_no_lake(
    tmp_path: Path, fraudlake_here: FraudlakeHere, arguments: tuple[str, ...], line: str
) -> None:
    ended = fraudlake_here("--lake", str(tmp_path / "lake"), "run", *arguments)

    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"fraudlake: {line}\n")
    assert not (tmp_path / "lake").exists()


class OneLake:
    """A lake that knows nothing but its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[OneLake]]:
    """The lakes that were opened; commands that do nothing stand for those of the steps."""
    lakes: list[OneLake] = []

    def open_lake(settings: Settings, must_exist: bool = False) -> OneLake:
        lakes.append(OneLake(settings))
        return lakes[-1]

    def command(name: str, *flags: str) -> click.Command:
        @click.command(name)
        @options(*flags)
        @click.pass_obj
        def run(app: App, /, **given: str | None) -> None:
            if name == "train":
                app.say({"version": len(lakes), **given}, f"trained with {given}")
                return
            if name == "status":
                app.say({"gaps": ["a row"]}, "a row is missing")
                sys.exit(1)
            program.run_step(app, app.open(**given), [name])  # type: ignore[list-item]

        return run

    monkeypatch.setattr("fraudlake.lake.open_lake", open_lake)
    steps_ = {"ingest": ("landing", "trigger"), "refine": ("trigger",), "train": ("holdout",), "score": ("trigger",)}
    steps_["status"] = ()
    monkeypatch.setattr(steps, "COMMANDS", {name: command(name, *flags) for name, flags in steps_.items()})
    yield lakes


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The streams that were run, each time, and under which trigger."""
    seen: list[tuple[Any, ...]] = []

    def run_streams(lake: Any, streams: list[Any], trigger: str) -> list[Done]:
        seen.append((*streams, trigger))
        if streams == ["refine"] and str(lake.settings.landing) == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        return [Done(name, 2, 1) for name in streams]

    monkeypatch.setattr(steps, "run_streams", run_streams)
    return seen


def test_the_commands_of_the_steps_run_over_one_lake_with_their_flags_together(
    opened: list[OneLake], runs: list[tuple[Any, ...]], fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    flags = ("--steps", "ingest,train,score", "--landing", "landed", "--holdout", "0.2")
    ended = fraudlake_here("--lake", str(tmp_path), "run", *flags)

    assert ended.stdout == (
        "ingest: 2 files in 1 micro-batch\ntrained with {'holdout': '0.2'}\nscore: 2 rows in 1 micro-batch\n"
    )
    assert runs == [("ingest", "available-now"), ("score", "available-now")]
    [lake] = opened
    assert (str(lake.settings.landing), lake.settings.holdout) == ("landed", 0.2)


def test_json_has_the_object_of_each_step(
    opened: list[OneLake], runs: list[tuple[Any, ...]], fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    ended = fraudlake_here("--json", "--lake", str(tmp_path), "run", "--steps", "ingest,train")

    assert json.loads(ended.stdout) == {
        "steps": {
            "ingest": {"streams": [{"step": "ingest", "rows": 2, "batches": 1}]},
            "train": {"version": 1, "holdout": None},
        }
    }


@pytest.mark.parametrize(
    ("flags", "printed"),
    [
        ((), "refine: 2 rows in 1 micro-batch\na row is missing\n"),
        (
            ("--json",),
            '{"steps": {"refine": {"streams": [{"step": "refine", "rows": 2, "batches": 1}]}, '
            '"status": {"gaps": ["a row"]}}}\n',
        ),
    ],
)
def test_rows_that_do_not_add_up_fail_the_steps_as_they_fail_status(
    opened: list[OneLake],
    runs: list[tuple[Any, ...]],
    fraudlake_here: FraudlakeHere,
    tmp_path: Path,
    flags: tuple[str, ...],
    printed: str,
) -> None:
    ended = fraudlake_here(*flags, "--lake", str(tmp_path), "run", "--steps", "refine,status")

    assert (ended.returncode, ended.stdout) == (1, printed)


def test_continuous_streams_run_together_once_all_steps_have_read_what_is_there(
    opened: list[OneLake], runs: list[tuple[Any, ...]], fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    flags = ("--steps", "ingest,train,score", "--trigger", "continuous")
    ended = fraudlake_here("--json", "--lake", str(tmp_path), "run", *flags)

    assert runs == [("ingest", "available-now"), ("score", "available-now"), ("ingest", "score", "continuous")]
    assert [*json.loads(ended.stdout)["steps"]] == ["ingest", "train", "score", "continuous"]
    assert len(opened) == 1


def test_a_signal_ends_the_steps_with_one_line_that_names_those_done_and_left(
    opened: list[OneLake], runs: list[tuple[Any, ...]], fraudlake_here: FraudlakeHere, tmp_path: Path
) -> None:
    arguments = ("--json", "--lake", str(tmp_path), "run", "--steps", "ingest,refine,score")
    ended = fraudlake_here(*arguments, "--landing", "signal")

    assert (ended.returncode, ended.stdout) == (143, "")
    assert ended.stderr == (
        "fraudlake: stopped by SIGTERM; done: ingest; left: refine, score; "
        "what is committed stays, and the same command does the rest\n"
    )
