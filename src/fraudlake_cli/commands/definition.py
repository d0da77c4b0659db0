"""The command define: shows and changes a lake's definition."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import FraudlakeError, MissingLakeError
from fraudlake.process import host
from fraudlake.settings import DEFINITION, Settings
from fraudlake.text import json_text, toml_file
from fraudlake_cli.app import App, cli, options, person_of
from fraudlake_cli.commands.rule_changes import signed
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@cli.command(example='fraudlake define --max-out-of-orderness "1 minute" --yes')
@options(*DEFINITION)
@click.option("--yes", is_flag=True, help="Change the lake. Without this flag, only show the changes.")
@signed
@click.pass_obj
def define(app: App, /, yes: bool, author: str | None, reason: str | None, **flags: str | None) -> None:
    """Show the lake's definition as lines for fraudlake.toml, or change it to the given flags and settings.

    A lake records its payload, columns, currency, entities, features, delay of labels, ordering, buckets, clustering
    and approvals; all commands take them from there. --columns lists all columns: a column that is left out stays in
    the tables, but gets no new values. Buckets and ordering can change until the first 'detect', clustering and the
    base currency never; fewer approvals need the approval of a second person. With --yes no step may run.
    """
    shown, changes = redefined(app.settings(**flags), yes, author, reason)
    app.say({"definition": shown, "changes": changes}, f"{_toml(shown)}\n\n{described(changes, yes)}")


def redefined(
    wanted: Settings, yes: bool, author: str | None, reason: str | None, names: Sequence[str] = DEFINITION
) -> tuple[dict[str, Any], dict[str, str]]:
    """Change the settings ``names`` of a lake's definition; without ``yes``, only return what would change.

    A lake that does not exist is created with all given settings.

    Returns:
        The definition after the call, and the differences by setting.

    Raises:
        WaitingError: fewer people shall have to agree from now on, which a second person must agree to.
    """
    from fraudlake.approvals import lowering
    from fraudlake.detection import rule_table
    from fraudlake.lake import open_lake
    from fraudlake.lake.definition import Change, differences
    from fraudlake.operations.standstill import standstill

    undefined = wanted.giving()
    changing = wanted.giving(*names)
    try:
        with console.status("opening the lake"):
            lake = open_lake(undefined, must_exist=True)
            present = lake.settings
            change = Change(person_of(lake.store, author), reason)
            if "approvals" in changing.origins:
                lowering.require(lake.store, changing.approvals, change, is_asked=yes)
            after = open_lake(changing, must_exist=True, change=change).settings
    except MissingLakeError:
        if not yes:
            raise
        change = Change(author or host.user_name(), reason)
        lake = open_lake(wanted, change=change)
        present = undefined
        after = lake.settings
    rule_table.require_valid([version.rule for version in rule_table.read(lake).evaluated], after)
    if {feature.name for feature in present.features} - {feature.name for feature in after.features}:
        _warn_of_retired(lake, after)
    if yes:
        with standstill(lake):
            after = open_lake(changing, change=change).settings
    return (after if yes else present).definition, differences(present, after)


def _warn_of_retired(lake: Lake, after: Settings) -> None:
    """Print a warning if the champion needs a feature that the lake will no longer declare."""
    from fraudlake.features import account_features
    from fraudlake.model import published

    with suppress(FraudlakeError):  # 'score' says what is wrong with the champion
        warning = published.retiring(lake, account_features.names(after))
        if warning is not None:
            console.print(f"[yellow]![/] {warning}", soft_wrap=True)


def described(changes: dict[str, str], yes: bool) -> str:
    """Describe changes, one line a setting; without ``yes``, also say how to apply them."""
    lines = [f"{name}: {difference}" for name, difference in changes.items()] or ["nothing changes"]
    return "\n".join([*lines, "add --yes to apply the changes"] if changes and not yes else lines)


def _toml(definition: dict[str, Any]) -> str:
    """Return a definition as lines of a settings file."""
    tables = {name: value for name, value in definition.items() if isinstance(value, dict)}
    features = definition["features"]
    simple = {name: value for name, value in definition.items() if name not in {*tables, "features"}}
    simple = {name: value for name, value in simple.items() if value is not None}
    lines = [f"{name} = {json_text.dumps(value)}" for name, value in simple.items()]
    for table, entries in tables.items():
        lines += [f"[{table}]"] if entries else []
        lines += [f"{name} = {_toml_value(entry)}" for name, entry in entries.items()]
    lines += [toml_file.entry("features", feature) for feature in features]
    return "\n".join(lines)


def _toml_value(entry: object) -> str:
    if not isinstance(entry, dict):
        return json_text.dumps(entry)
    parts = ", ".join(f"{part} = {json_text.dumps(value)}" for part, value in entry.items())
    return f"{{ {parts} }}"
