"""Commands for the lists that rules name: lists, lists add, load, show and end."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fraudlake.text.counts import counted
from fraudlake_cli import list_entry
from fraudlake_cli.app import App, cli, options, person_of
from fraudlake_cli.command import Day
from fraudlake_cli.commands.rule_changes import signed

if TYPE_CHECKING:
    from fraudlake_desk.lists import NamedList

_OF = click.option("--of", help="What the keys are of: account, an entity or a column.  [default: as the list]")
_UNTIL = click.option("--until", type=Day(), required=True, help="First day (UTC) that it does not concern any more.")


@cli.group(example="fraudlake lists list")
def lists() -> None:
    """Allow or watch accounts, terminals or other keys: rules name a list, and its entries expire."""


@lists.command(name="list", example="fraudlake lists list")
@options("warehouse")
@click.pass_obj
def list_(app: App, /, **flags: str | None) -> None:
    """List the lists: what each is of, its entries, and the rules that name it."""
    from fraudlake_desk import lists as lists_
    from fraudlake_desk import rules

    store = app.open_store(**flags)
    named = lists_.read_all(store, rules.read(store)[0])
    text = "\n".join(map(_described, named)) or "there are no lists: 'fraudlake lists add' begins one"
    app.say({"lists": [asdict(one) for one in named]}, text)


@lists.command(example="fraudlake lists add partners A17 --of account --until 2027-01-31 --reason 'a travel agency'")
@click.argument("name")
@click.argument("key")
@_OF
@_UNTIL
@signed
@options("warehouse")
@click.pass_obj
def add(
    app: App,
    /,
    name: str,
    key: str,
    of: str | None,
    until: datetime,
    author: str | None,
    reason: str | None,
    **flags: str | None,
) -> None:
    """Add a key to a list until a day; the first entry begins the list. Needs a reason.

    KEY is written as alerts have it; several columns as a JSON object. It concerns payments that are later than now by
    their event time.
    """
    from fraudlake_desk import lists as lists_
    from fraudlake_desk import rules
    from fraudlake_desk.list_entries import NewEntry

    store = app.open_store(**flags)
    present = rules.read(store)[0]
    wanted = NewEntry(person_of(store, author), reason or "", until.date())
    list_entry.say(app, lists_.add(store, present, wanted, name, of, key))


@lists.command(example="fraudlake lists load mules mules.csv --of account --until 2027-01-31 --reason 'ticket 4712'")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@_OF
@_UNTIL
@signed
@options("warehouse")
@click.pass_obj
def load(
    app: App,
    /,
    name: str,
    file: Path,
    of: str | None,
    until: datetime,
    author: str | None,
    reason: str | None,
    **flags: str | None,
) -> None:
    """Add the keys of a file to a list until a day. Needs a reason.

    FILE is CSV or parquet with the column 'key', or the columns of the key, and perhaps 'reason'. Keys that are on the
    list already stay as they are.
    """
    from fraudlake_desk import lists as lists_
    from fraudlake_desk import rules
    from fraudlake_desk.list_entries import NewEntry

    store = app.open_store(**flags)
    present = rules.read(store)[0]
    wanted = NewEntry(person_of(store, author), reason or "", until.date())
    loaded = lists_.load(store, present, wanted, name, of, file)
    text = (
        f"{counted(loaded.added, 'key')} added to {name}, from {loaded.starts_at:%Y-%m-%d %H:%M} to "
        f"{loaded.ends_at:%Y-%m-%d %H:%M} UTC; {loaded.present:,} were on it already"
    )
    app.say(asdict(loaded), text)


@lists.command(example="fraudlake lists show partners --all")
@click.argument("name")
@click.option("--key", help="Only the entries of this key.")
@click.option("--all", "is_all", is_flag=True, help="Include entries that have ended.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most entries to show.")
@options("warehouse")
@click.pass_obj
def show(app: App, /, name: str, key: str | None, is_all: bool, limit: int, **flags: str | None) -> None:
    """List the entries of a list, the latest first, with the alerts that each has suppressed."""
    from fraudlake_desk import lists as lists_
    from fraudlake_desk import rules

    store = app.open_store(**flags)
    shown = lists_.entries(store, rules.read(store)[0], name, key, is_all, limit)
    text = "\n".join(map(list_entry.line, shown)) or f"the list {name} has no such entry; add --all to see ended ones"
    app.say({"entries": [one.as_dict() for one in shown]}, text)


@lists.command(example="fraudlake lists end 3f2a9c --reason 'it was fraud'")
@click.argument("entry")
@signed
@options("warehouse")
@click.pass_obj
def end(app: App, /, entry: str, author: str | None, reason: str | None, **flags: str | None) -> None:
    """End an entry early; ENTRY is its id, or the beginning of that. Needs a reason."""
    list_entry.end(app, entry, author, reason, flags)


def _described(named: NamedList) -> str:
    users = [f"allowed by {', '.join(named.allowed_by)}"] if named.allowed_by else []
    users += [f"watched by {', '.join(named.watched_by)}"] if named.watched_by else []
    return (
        f"{named.name}  {named.of}  {counted(named.open, 'key')}, {named.ended:,} ended; "
        f"{counted(named.suppressed, 'alert')} suppressed; {'; '.join(users) or 'no rule in use names it'}"
    )
