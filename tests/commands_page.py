"""The page docs/reference/commands.md, made of the program's own help: ``make reference`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from fraudlake_cli.app import App
from fraudlake_cli.commands import cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

What `fraudlake COMMAND --help` prints, for every command. `make reference` writes this page. Exit codes: 0 done,
1 failed, 2 wrong use, 130 and 143 [stopped by a signal](../how-to/run-and-stop.md#stop-a-command).
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_sections(cli, ("fraudlake",), None)])


def _sections(command: click.Command, path: tuple[str, ...], parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, parent, path[-1], obj=App(), terminal_width=110, **command.context_settings)
    yield f"##{'#' * (len(path) > 2)} `{' '.join(path)}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _sections(command.commands[name], (*path, name), context)


if __name__ == "__main__":
    PAGE.write_text(page())
