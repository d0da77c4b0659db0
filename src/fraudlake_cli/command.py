"""Commands whose help shows choices, defaults and an example, and groups that list them by task."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import click

from fraudlake.errors import UsageError
from fraudlake.settings import DEFINITION, Settings
from fraudlake.times.durations import text as words

_SENTENCE = 500
"""Maximum length of the first sentence of a command's help."""
_VALUES = {
    "landing": "FOLDER",
    "checkpoints": "FOLDER",
    "delivery_folder": "FOLDER",
    "bootstrap_servers": "HOST:PORT",
    "metrics_address": "HOST:PORT",
    "kafka_secret": "SCOPE/KEY",
    "delivery_secret": "SCOPE/KEY",
    "payload": "JSON",
    "columns": "JSON",
    "currency": "JSON",
    "entities": "JSON",
    "features": "JSON",
    "row_retention": "JSON",
    "disputes": "JSON",
    "panels": "JSON",
    "max_idle": "DURATION",
    "timestamp_floor": "DATE",
    "train_from": "DATE",
    "threshold": "PROBABILITY",
    "promotion_metric": "FIGURE",
    "max_bytes_per_trigger": "SIZE",
    "target_file_size": "SIZE",
    "warn": "NAMES",
    "warehouse": "ID",
}
"""Names in help for values of settings whose type does not name them."""
_TYPES: Mapping[object, str] = {int: "INTEGER", float: "FLOAT", bool: "[true|false]", timedelta: "DURATION"}


def require_new(out: Path) -> None:
    """Refuse to write over a file.

    Raises:
        UsageError: the file of ``--out`` exists.
    """
    if out.exists():
        raise UsageError(f"--out {out}: it exists: name another file, or remove it")


class Day(click.DateTime):
    """A day such as 2026-03-07."""

    def __init__(self) -> None:
        """Read a day."""
        super().__init__(["%Y-%m-%d"])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the name of the value in help."""
        return "DATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read a day from text."""
        try:
            day: datetime = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"'{value}' is not a day: give one such as 2026-03-07", param, ctx)
        return day


def _keep(context: click.Context, option: click.Parameter, value: object) -> None:
    if value:
        setattr(context.find_root().obj, str(option.name), value)


def _everywhere() -> list[click.Option]:
    path = click.Path(path_type=Path)
    options: list[tuple[str, dict[str, Any]]] = [
        ("--lake", {"type": path, "metavar": "FOLDER", "help": "Folder of the lake.  [default: ./lake]"}),
        ("--catalog", {"metavar": "NAME", "help": "Catalog of a lake in a Databricks workspace, instead of --lake."}),
        ("--schema", {"metavar": "NAME", "help": "Its schema."}),
        ("--config", {"type": path, "metavar": "FILE", "help": "Settings.  [default: ./fraudlake.toml, if there]"}),
        ("--json", {"is_flag": True, "help": "Print one JSON object on standard output and nothing else."}),
    ]
    return [click.Option([name], callback=_keep, expose_value=False, **attributes) for name, attributes in options]


EVERYWHERE = _everywhere()
"""The options that may come before or after a command: each is an attribute of the program's object."""


class Command(click.Command):
    """A command that also takes the options of all commands, and whose help ends with an example call."""

    def __init__(self, *arguments: Any, example: str = "", task: str = "", **attributes: Any) -> None:
        """Make a command; ``example`` is a call of it, and ``task`` the heading that lists it if the group does not."""
        super().__init__(*arguments, **attributes)
        self.example = example
        self.task = task

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options and those of all commands."""
        return [*super().get_params(ctx), *EVERYWHERE]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and name those of all commands."""
        _write(formatter, "Options", super().get_params(ctx), ctx)
        names = ", ".join(option.opts[0] for option in EVERYWHERE)
        formatter.write_paragraph()
        formatter.write_text(f"Every command also takes {names}: see 'fraudlake --help'.")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        _write_example(formatter, self.example)


class Commands(click.Group):
    """A group whose help lists its commands by task, each with its whole first sentence, which click would cut off."""

    group_class: type[click.Group] | type[type] | None = type  # nested groups use the same class
    command_class = Command

    def __init__(
        self, *arguments: Any, example: str = "", tasks: Mapping[str, tuple[str, ...]] | None = None, **attributes: Any
    ) -> None:
        """Make a group of commands.

        Args:
            arguments: arguments of click's group.
            example: a call of one of its commands.
            tasks: names of commands by task; then come the commands that name the task themselves. Commands without
                a task come last.
            attributes: keyword arguments of click's group.
        """
        super().__init__(*arguments, **attributes)
        self.example = example
        self._tasks = tasks or {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options of all commands and the group's own."""
        return [*EVERYWHERE, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options; the error for a command's option says where to put it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            takers = [
                name for name, one in self.commands.items() if any(error.option_name in o.opts for o in one.params)
            ]
            if not takers:
                raise
            called = next((name for name in takers if name in args), takers[0])
            example = f"{ctx.command_path} {called} {error.option_name} …"
            raise click.UsageError(f"{error.option_name} goes after its command: '{example}'", ctx) from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options (in the program's help, those of all commands) and the list of commands."""
        _write(formatter, "Options", self.get_params(ctx) if ctx.parent is None else super().get_params(ctx), ctx)
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example."""
        _write_example(formatter, self.example)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        tasks = {task: [*names] for task, names in self._tasks.items()}
        for name in sorted(set(self.list_commands(ctx)) - {name for names in tasks.values() for name in names}):
            others = "Others" if self._tasks else "Commands"
            tasks.setdefault(getattr(self.commands[name], "task", "") or others, []).append(name)
        width = max(map(len, self.commands), default=0)
        for task, names in tasks.items():
            commands = [(name.ljust(width), self.get_command(ctx, name)) for name in names if name in self.commands]
            if commands:
                with formatter.section(task):
                    formatter.write_dl([(name, one.get_short_help_str(_SENTENCE)) for name, one in commands if one])


def _write_example(formatter: click.HelpFormatter, example: str) -> None:
    if example:
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")  # whole, so that it can be copied


def _write(
    formatter: click.HelpFormatter, title: str, options: Iterable[click.Parameter], context: click.Context
) -> None:
    with formatter.section(title):
        records = [option.get_help_record(context) for option in options if isinstance(option, click.Option)]
        formatter.write_dl([record for record in records if record])


def time_of(option: str, text: str) -> datetime:
    """Return the time that an option names, in UTC if the text has no zone.

    Raises:
        UsageError: the text is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: must be a time such as 2026-03-07 or 2026-03-07T12:30") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def flag(name: str) -> Any:
    """Return the option of a setting, as a decorator; its value is checked with all settings."""
    field = Settings.model_fields[name]
    default = _text(field.default)
    if name in DEFINITION:
        default = "the lake's" + (f"; of a new lake: {default}" if default else "")
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        metavar=metavar(name),
        shell_complete=lambda context, option, typed: [
            one for one in _choices(field.annotation) if one.startswith(typed)
        ],
        help=f"{field.description}{f'  [default: {default}]' if default else ''}",
    )


def metavar(setting: str) -> str:
    """Return the name in help of the values of a setting."""
    return _VALUES.get(setting) or _value(Settings.model_fields[setting].annotation)


def _choices(kind: Any) -> list[str]:
    return [*map(str, get_args(kind))] if get_origin(kind) is Literal else []


def _value(kind: Any) -> str:
    """Return the name in help of a value of a type."""
    if choices := _choices(kind):
        return f"[{'|'.join(choices)}]"
    if get_origin(kind) in (Union, types.UnionType):
        return _value(next(one for one in get_args(kind) if one is not type(None)))
    return _TYPES.get(kind, "TEXT")


def _text(default: object) -> str:
    """Return a default as a user would write it, or an empty text if there is none."""
    if isinstance(default, timedelta):
        return words(default)
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, str | int | float) else ""
