"""Commands that suppress a rule for a key: rules suppress, suppressions, end-suppression."""

from __future__ import annotations

from datetime import datetime

import click

from fraudlake_cli import list_entry
from fraudlake_cli.app import App, options, person_of
from fraudlake_cli.command import Day
from fraudlake_cli.commands.rule_changes import signed
from fraudlake_cli.commands.rules import rules_


@rules_.command(example="fraudlake rules suppress busy --key A17 --until 2027-01-31 --reason 'a travel agency'")
@click.argument("name")
@click.option("--entity", help="What the key is of: account, or an entity.  [default: what the rule is by]")
@click.option("--key", required=True, help="The key, as alerts have it; several columns as a JSON object.")
@click.option("--until", type=Day(), required=True, help="First day (UTC) that is not suppressed any more.")
@signed
@options("warehouse")
@click.pass_obj
def suppress(
    app: App,
    /,
    name: str,
    entity: str | None,
    key: str,
    until: datetime,
    author: str | None,
    reason: str | None,
    **flags: str | None,
) -> None:
    """Suppress a rule for an account, or for a key of another entity, until a day.

    It concerns payments that are later than now by their event time. The rule goes on to see them all; the alerts that
    it does not raise go to silver_suppressed_alerts. Needs a reason.
    """
    from fraudlake_desk import list_entries, rules

    store = app.open_store(**flags)
    present = rules.read(store)[0]
    wanted = list_entries.NewEntry(person_of(store, author), reason or "", until.date())
    list_entry.say(app, list_entries.suppress(store, present, wanted, name, entity, key))


@rules_.command(example="fraudlake rules suppressions --all")
@click.option("--all", "is_all", is_flag=True, help="Include entries that have ended.")
@options("warehouse")
@click.pass_obj
def suppressions(app: App, /, is_all: bool, **flags: str | None) -> None:
    """List the keys for which rules are suppressed, the latest first."""
    from fraudlake_desk import list_entries, rules

    store = app.open_store(**flags)
    shown = [one for one in list_entries.listed(store, rules.read(store)[0]) if is_all or one.is_open]
    text = "\n".join(map(list_entry.line, shown)) or "no rule is suppressed; add --all to see entries that have ended"
    app.say({"entries": [one.as_dict() for one in shown]}, text)


@rules_.command(name="end-suppression", example="fraudlake rules end-suppression 3f2a9c --reason 'it was fraud'")
@click.argument("entry")
@signed
@options("warehouse")
@click.pass_obj
def end_suppression(app: App, /, entry: str, author: str | None, reason: str | None, **flags: str | None) -> None:
    """End an entry early; ENTRY is its id, or the beginning of that. Needs a reason."""
    list_entry.end(app, entry, author, reason, flags)
