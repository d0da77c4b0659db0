"""The command example: lists and runs the examples of the Flink phrasebook."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fraudlake.errors import UsageError
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.output.progress import console, output

if TYPE_CHECKING:
    from examples.catalogue import Example

_CLONE = Path(__file__).parents[3]


@cli.command(example="fraudlake example word_count")
@click.argument("name", required=False)
@click.option("--list", "is_list", is_flag=True, help="List the examples and run none.")
@click.option("--port", type=click.IntRange(0, 65535), default=9999, show_default=True, help="For a socket.")
@click.option("--jdbc-url", metavar="URL", help="Database for the table of the JDBC sink.  [default: an embedded one]")
@options("bootstrap_servers")
@click.pass_obj
def example(
    app: App, /, name: str | None, is_list: bool, port: int, jdbc_url: str | None, bootstrap_servers: str | None
) -> None:
    """Run an example of the Flink phrasebook by its NAME, or list them all.

    Each is a short program that translates a program or a call of Flink and prints its result. It works in a temporary
    folder and uses no lake. Needs: Java; a few say that they need a Kafka broker.
    """
    if is_list == (name is not None):
        raise UsageError("give the NAME of an example, or --list")
    if not (_CLONE / "examples" / "catalogue.py").exists():
        raise UsageError(
            "the examples are in the repository, not in the package: run this from a clone, after make setup"
        )
    sys.path.insert(0, str(_CLONE))
    from examples import catalogue, program

    if name is None:
        examples = catalogue.examples()
        listed = [{"name": item.name, "document": item.document, "shows": item.shows} for item in examples]
        app.show({"examples": listed}, lambda: _print_list(examples, catalogue.DOCUMENTS))
        return
    main = catalogue.find(name).main
    servers = app.settings(bootstrap_servers=bootstrap_servers).bootstrap_servers
    printed = io.StringIO()
    with redirect_stdout(printed) if app.json else nullcontext():
        program.run(main, bootstrap_servers=servers, port=port, jdbc_url=jdbc_url)
    app.show({"name": name, "printed": printed.getvalue().splitlines()})


def _print_list(examples: Sequence[Example], documents: Mapping[str, str]) -> None:
    width = max(len(item.name) for item in examples)
    for number, title in documents.items():
        output.print(f"[bold]{number}[/] {title}", soft_wrap=True)
        for item in examples:
            if item.document == number:
                output.print(f"  {item.name:<{width}}  {item.shows}", markup=False, soft_wrap=True)
    console.print("run one with: fraudlake example NAME", markup=False)
