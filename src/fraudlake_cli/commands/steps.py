"""Steps: runs some steps of a run one after the other, in one process that opens the lake once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import UsageError
from fraudlake.settings import Settings
from fraudlake.text import json_text
from fraudlake_cli.app import KAFKA, App, say_streams
from fraudlake_cli.commands import detection, ingestion, model, operations
from fraudlake_cli.output.progress import planned, run_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fraudlake.lake import Lake
    from fraudlake.streams.stream import Done, Stream

COMMANDS: Mapping[str, click.Command] = {
    "ingest": ingestion.ingest,
    "refine": ingestion.refine,
    "disputes": model.disputes,
    "detect": detection.detect,
    "aggregate": detection.aggregate,
    "train": model.train,
    "score": model.score,
    "optimize": operations.optimize,
    "status": operations.status,
}
"""The steps of a run in their order, with the command of each; the last one only shows figures."""
_LEFT_OUT = {"score": {"first", "last", "model_version", *KAFKA}}
"""Flags that a step lacks within a run: those for scoring days again, and for scoring a topic instead of silver."""
_WITHOUT_STREAMS = ("disputes", "train", "optimize", "status")
_ONLY_NAMED = {"retry_rejected", "allow_short_retention", "retention", "row_retention"}
"""Flags that need their step in ``--steps``: a run without named steps removes neither rows nor files."""


def names(text: str) -> list[str]:
    """Parse a list of steps, separated by commas.

    Raises:
        UsageError: it is empty, or has unknown or repeated steps, or another order than a run.
    """
    chosen = [name.strip() for name in text.split(",")] if text.strip() else []
    if not chosen:
        raise UsageError(f"--steps names no step: give one or more of {','.join(COMMANDS)}")
    for name in chosen:
        if name not in COMMANDS:
            raise UsageError(f"--steps: there is no step '{name}'; there are {', '.join(COMMANDS)}")
        if chosen.count(name) > 1:
            raise UsageError(f"--steps: {name} is listed twice")
    ordered = [name for name in COMMANDS if name in chosen]
    if chosen != ordered:
        raise UsageError(f"--steps: {','.join(chosen)} is not the order of a run: give {','.join(ordered)}")
    return chosen


def streaming(steps: Iterable[str]) -> tuple[str, ...]:
    """Return those of some steps that run streams."""
    return tuple(step for step in steps if step not in _WITHOUT_STREAMS)


def flags() -> list[click.Parameter]:
    """Return the flags of all steps, each once."""
    return [*{option.name: option for name in COMMANDS for option in _flags_of(name)}.values()]


def require_flags(values: Mapping[str, Any], steps: Collection[str] = ()) -> None:
    """Refuse flags that would do nothing.

    Args:
        values: values of :func:`flags`.
        steps: the named steps; by default a whole run.

    Raises:
        UsageError: a flag belongs to a step that is not run.
    """
    options = {option.name for step in steps or COMMANDS for option in _flags_of(step)}
    if not steps:
        options -= _ONLY_NAMED
    for step in COMMANDS:
        for option in _flags_of(step):
            if values[_name(option)] not in (None, False) and option.name not in options:
                raise UsageError(f"{option.opts[0]} is a flag of {step}: name it in --steps")


def run(context: click.Context, steps: list[str], values: Mapping[str, Any]) -> None:
    """Run the commands of steps one after the other; with a continuous trigger, then their streams together.

    Args:
        context: the context of the calling command.
        steps: the names of the steps.
        values: values of :func:`flags`.
    """
    app = _Steps(
        **vars(context.obj),
        streaming=streaming(steps),
        setting_flags={name: values[name] for name in values if name in Settings.model_fields},
    )
    context.obj = app
    with app.joined():
        with planned(*steps) as is_done:
            for step in steps:
                _call(context, step, values)
                if step == "score" and "aggregate" in steps:
                    aggregate_score_alerts(app.open())
                is_done()
        if app.settings().trigger == "continuous":
            app.together = []
            for step in app.streaming:
                _call(context, step, values)
            app.run_together()


def aggregate_score_alerts(lake: Lake) -> None:
    """Aggregate the alerts that ``score`` has raised, if there is a live rule of the kind ``model``."""
    from fraudlake.detection import rule_table
    from fraudlake.streams import aggregate

    if rule_table.read(lake).select_source("predictions").live:
        run_streams(lake, aggregate.streams(lake), "available-now")


def _call(context: click.Context, step: str, values: Mapping[str, Any]) -> None:
    context.obj.step = step
    context.invoke(COMMANDS[step], **{name: values[name] for name in map(_name, _flags_of(step))})


def _flags_of(step: str) -> list[click.Parameter]:
    return [option for option in COMMANDS[step].params if option.name not in _LEFT_OUT.get(step, ())]


def _name(option: click.Parameter) -> str:
    return str(option.name)


@dataclass
class _Steps(App):
    """The application for commands run as steps: it opens one lake for all of them, and joins their results."""

    streaming: tuple[str, ...] = ()
    """The steps that run streams."""
    setting_flags: Mapping[str, Any] = field(default_factory=dict)
    """The settings among the flags."""
    step: str = ""
    """The step that runs."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The JSON objects of the steps."""
    together: list[Stream] | None = None
    """The streams that :meth:`run_together` runs; None while each command runs its own."""

    @cached_property
    def _settings(self) -> Settings:
        return super().settings(**self.setting_flags)

    @cached_property
    def _lake(self) -> Lake:
        lake = super().open(**self.setting_flags)
        lake.steps = self.streaming
        return lake

    def settings(self, **flags: object) -> Settings:
        """Return the settings of all steps."""
        return self._settings

    def open(self, **flags: object) -> Lake:
        """Return the lake of all steps."""
        return self._lake

    def open_existing(self, **flags: object) -> Lake:
        """Return the lake of all steps; before the first result, open it without creating anything."""
        return self._lake if self.results else super().open_existing(**self.setting_flags)

    def run(self, lake: Lake, streams: list[Stream]) -> list[Done]:
        """Run the streams of a step over the available rows, or leave them to :meth:`run_together`."""
        if self.together is None:
            return run_streams(lake, streams, "available-now")
        self.together += streams
        return []

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Print the joined JSON object after the block, even if ``status`` ends it with an exit code."""
        try:
            yield
        except SystemExit:
            self._print()
            raise
        self._print()

    def _print(self) -> None:
        if self.json:
            click.echo(json_text.dumps({"steps": self.results}))

    def run_together(self) -> None:
        """Run the streams of all steps until stopped."""
        done = run_streams(self._lake, self.together or [], "continuous")
        self.together = None
        self.step = "continuous"
        say_streams(self, done)

    def show(self, result: dict[str, Any], print_text: Callable[[], None] = lambda: None) -> None:
        """Add the result of a step to the joined JSON object, and print its text unless ``--json`` is given."""
        if self.together is not None:
            return
        self.results[self.step] = result
        if not self.json:
            print_text()
