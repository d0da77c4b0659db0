"""Arguments: whatever a command line, the environment or a settings file holds, a command ends with one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import hypothesis
import pytest
from hypothesis import strategies as st

from fraudlake.errors import FraudlakeError
from fraudlake.settings import ENV_PREFIX, SECRETS, Settings
from fraudlake_cli.command import EVERYWHERE
from fraudlake_cli.commands import cli
from fraudlake_cli.main import main
from tests import plain_lake

HOSTILE = (
    "", " ", "'", '"', "`", "\\", "';--", "' OR '1'='1", "'; DROP TABLE silver_alerts; --", "`x`.`y`", "%s",
    "$(touch x)", "{0}", "[red]", "a\nb", "a\0b", "../x", "../../x/../y", "\u0430lert", "\u202egnp", "\ufeff", "\udcff",
    "é" * 10_000, "x" * 10_000, "-1", "0", "1", "30", "1e400", "nan", "inf", "9" * 400, "10 seconds", "-5 ms",
    "99999999999999 days", "2026-02-30", "2026-03-07", "true", "null", "[]", "{}", '{"a": {"b": [1]}}', "[" * 5_000,
    "127.0.0.1:1", "a/b", "kafka", "log", "file",
)  # fmt: skip
short = st.text(max_size=12).filter(lambda text: not text.startswith("/") and ".." not in text)
values = st.sampled_from(HOSTILE) | short
NAMES = [*sorted(set(Settings.model_fields) - {"schema_name"}), "schema", "nonsense"]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))


@dataclass(frozen=True)
class Call:
    """A call of the program."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    file: str = ""


@st.composite
def calls(draw: st.DrawFn) -> Call:
    path = draw(st.sampled_from(sorted(COMMANDS)))
    own = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    flags = [*_flags(draw, EVERYWHERE, 2), *path, *_flags(draw, [*own, *EVERYWHERE], 4)]
    for argument in COMMANDS[path].params:
        if isinstance(argument, click.Argument) and draw(st.integers(0, 9)):
            flags.append(draw(values))
    if path == ("simulate",):  # which continues without a limit
        flags += ["--rows", draw(st.sampled_from(["-1", "0", "1", "30"])), "--fast"]
    if path == ("watch",):  # so does this
        flags.append("--once")
    # A system hands over no text with a zero byte; a settings file may hold one.
    given = {f"{ENV_PREFIX}{name.upper()}": value for name, value in _settings(draw) if "\0" not in name + value}
    lines = [f"{name} = {draw(st.sampled_from([json.dumps(value), value]))}" for name, value in _settings(draw)]
    return Call([flag.replace("\0", "") for flag in flags], given, "\n".join(lines))


def _settings(draw: st.DrawFn) -> list[tuple[str, str]]:
    return draw(st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=1))


def _flags(draw: st.DrawFn, options: Sequence[click.Option], most: int) -> list[str]:
    given = []
    for option in draw(st.lists(st.sampled_from(options), max_size=most)):
        given += [option.opts[0]] if option.is_flag else [option.opts[0], draw(values)]
    return given


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a lake and no way to a workspace, where Spark does not start."""
    folder = tmp_path_factory.mktemp("arguments") / "of" / "a" / "deep" / "path"
    plain_lake.make(folder / "lake")

    def start(*_: object) -> None:
        raise FraudlakeError("Spark is not started here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fraudlake.lake.session.start", start)
        patch.setattr("fraudlake.lake.spark_home.folder", start)
        patch.setattr("fraudlake_desk.web.server.serve", lambda *_: None)
        patch.setattr("webbrowser.open", lambda _: None)
        # The program takes the first line of an error that it did not foresee, and of no other.
        patch.setattr(sys.modules[main.__module__], "first_line", raise_)
        patch.setenv("HOME", str(folder))
        patch.setenv("PATH", str(folder))
        yield folder


def raise_(error: Exception) -> None:
    raise error


def ended(call: Call, place: Path) -> tuple[int, str]:
    """Exit code and message of a call; an unexpected error, which the program would keep in a file, is raised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for name, value in call.environment.items():
            patch.setenv(name, value)
        (place / "fraudlake.toml").write_text(call.file, errors="surrogateescape")
        patch.setattr("sys.argv", ["fraudlake", *call.arguments])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), str(end)
        return 0, ""


@pytest.mark.slow
@hypothesis.example(Call(["verdicts", "é" * 10_000]))
@hypothesis.example(Call(["--lake", "é" * 10_000, "run"]))
@hypothesis.example(Call(["--landing", "é" * 10_000, "run"]))
@hypothesis.given(calls())
@hypothesis.settings(max_examples=200, suppress_health_check=list(hypothesis.HealthCheck))
def test_any_call_ends_with_a_known_code_and_at_most_one_line(place: Path, call: Call) -> None:
    code, message = ended(call, place)
    assert code in (0, 1, 2)
    assert len(message.splitlines()) <= 1
    assert message or code < 2


def test_no_secret_is_a_flag() -> None:
    """Other users see a process's arguments. The URL of `example` is that of a database to try it with."""
    flags = {option.name for path, command in COMMANDS.items() if path != ("example",) for option in command.params}
    assert {"lake", "topic"} - flags == {"lake"}
    assert not flags & set(SECRETS)
