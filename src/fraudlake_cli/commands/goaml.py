"""The commands of goaml: write a report of transactions for a financial intelligence unit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from fraudlake.errors import UsageError, first_line
from fraudlake.text import toml_file
from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, options


@cli.group(example="fraudlake goaml template")
def goaml() -> None:
    """Write the payments that a verdict calls fraud as a report of transactions for goAML."""


@goaml.command(example="fraudlake goaml template --out goaml.toml")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File to write.  [default: goaml.toml]")  # fmt: skip
@click.pass_obj
def template(app: App, /, out: Path | None) -> None:
    """Write a mapping to fill: all fields that goAML requires, and others as comments."""
    from fraudlake_desk.documents import document, goaml

    file = out or Path("goaml.toml")
    if file.exists():
        raise UsageError(f"--out {file}: it exists, and may be filled already")
    document.save(file, goaml.template())
    app.say({"file": str(file)}, str(file))


@goaml.command(example="fraudlake goaml report 7d6c1f… --mapping goaml.toml")
@click.argument("item")
@click.option("--mapping", type=click.Path(path_type=Path), required=True, metavar="FILE",
              help="The filled template.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File to write.  [default: goaml-ITEM.xml]")  # fmt: skip
@options("warehouse")
@click.pass_obj
def report(app: App, /, item: str, mapping: Path, out: Path | None, **flags: str | None) -> None:
    """Payments of ITEM that its verdict calls fraud → one XML file.

    It has the fields that goAML's documents require. Check it against the schema of the unit that receives it.
    """
    from fraudlake.review import items
    from fraudlake_desk.documents import document, goaml

    store = app.open_store(**flags)
    named = items.require_named(store, item)
    try:
        values = toml_file.read(mapping)
    except (OSError, ValueError) as error:
        raise UsageError(f"--mapping {mapping}: {first_line(error)}") from None
    try:
        made = goaml.report(store, named, values, datetime.now(UTC))
    except UsageError as error:
        raise UsageError(f"{mapping}: {error}") from None
    file = out or Path(f"goaml-{named.item.item_id[:32]}.xml")
    document.save(file, made.xml)
    said = f"{file}: {counted(made.payments, 'payment')}"
    if made.replaced:
        said += f"; letters that XML does not have are U+FFFD in {', '.join(made.replaced)}"
    app.say({"file": str(file), "payments": made.payments, "replaced": made.replaced}, said)
