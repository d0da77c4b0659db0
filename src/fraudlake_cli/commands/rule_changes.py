"""Commands that list and change rules: rules list, add, shadow, promote, retire, diff, apply."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake_cli.app import App, person_of
from fraudlake_cli.commands.rules import as_dict, definition, described, query_of, rules_
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleVersion, Status

_VERSION = click.option("--version", "number", type=int, help="Version of the rule.  [default: the newest]")


def signed(command: Any) -> Any:
    """Give a command the flags for the author and the reason of a change."""
    author = click.option("--author", help="Author of the change.  [default: the user of this machine]")
    return author(click.option("--reason", help="Reason for the change.")(command))


@rules_.command(name="list", example="fraudlake rules list --all")
@click.option("--all", "is_all", is_flag=True, help="Include retired versions.")
@click.pass_obj
def list_(app: App, /, is_all: bool) -> None:
    """List the rules of the lake with their versions and statuses."""
    from fraudlake.detection import rule_table

    rules = rule_table.read(app.open_existing())
    shown = [version for version in rules.versions if is_all or version.status != "retired"]
    width = max((len(version.rule.name) for version in shown), default=0)
    lines = [f"{version.rule.name:<{width}}  {version.rule.kind:<16}  {described(version)}" for version in shown]
    result = {"change": rules.change, "rules": [as_dict(version) for version in shown]}
    app.say(result, "\n".join(lines) or "there are no rules; add --all to see retired ones")


@rules_.command(example="fraudlake rules add rules.toml --reason 'a new pattern'")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--sql", type=click.Path(path_type=Path), help="A Flink SQL query with MATCH_RECOGNIZE, instead of FILE.")
@click.option("--name", help="Name of the rule of the query.")
@click.option("--pack", help="A pack of rules that comes with fraudlake, instead of FILE; see 'fraudlake rules packs'.")
@signed
@click.pass_obj
def add(
    app: App,
    /,
    file: Path | None,
    sql: Path | None,
    name: str | None,
    pack: str | None,
    author: str | None,
    reason: str | None,
) -> None:
    """Add rules, or new versions of rules, as drafts.

    FILE is a TOML file with [[rules]] entries, as in the settings. A rule that is the same as its newest version stays
    as it is.
    """
    from fraudlake.detection import rule_table
    from fraudlake.rules import rule_file, rule_pack

    if sum(source is not None for source in (file, sql, pack)) != 1 or (sql is None) != (name is None):
        raise UsageError("give either a FILE of rules, or --pack NAME, or --sql FILE with --name NAME")
    if pack is not None:
        file = rule_pack.find(pack).file
    rules: list[Rule] = [rule for rule, _ in rule_file.read(file)] if file else [_named(sql, name)]
    rule_table.require_valid(rules, app.settings_of_lake())
    lake = _open(app)
    person = person_of(lake.store, author)
    added = rule_table.add(lake, rules, person, reason)
    names = {version.rule.name for version in added}
    same = [rule.name for rule in rules if rule.name not in names]
    _say(app, added, f"{', '.join(same)}: the same as before" if same else None)


@rules_.command(example="fraudlake rules packs card_velocity")
@click.argument("name", required=False)
@click.pass_obj
def packs(app: App, /, name: str | None) -> None:
    """List the packs of rules that come with fraudlake, or print the file of NAME, to be changed and added."""
    from fraudlake.rules import rule_pack

    if name is not None:
        pack = rule_pack.find(name)
        app.say({"pack": pack.name, "file": pack.text}, pack.text.rstrip())
        return
    every = rule_pack.find_all()
    width = max(len(pack.name) for pack in every)
    lines = [f"{pack.name:<{width}}  {pack.title}\n{'':<{width}}  needs {pack.needs}" for pack in every]
    listed = [{"pack": pack.name, "title": pack.title, "needs": pack.needs} for pack in every]
    app.say({"packs": listed}, "\n".join(lines))


@rules_.command(example="fraudlake rules shadow tiny_then_huge")
@click.argument("name")
@_VERSION
@signed
@click.pass_obj
def shadow(app: App, /, name: str, number: int | None, author: str | None, reason: str | None) -> None:
    """Evaluate a rule without delivering its alerts, which go to silver_shadow_alerts."""
    _set_status(app, name, "shadow", number, author, reason)


@rules_.command(example="fraudlake rules promote tiny_then_huge --version 2")
@click.argument("name")
@_VERSION
@signed
@click.pass_obj
def promote(app: App, /, name: str, number: int | None, author: str | None, reason: str | None) -> None:
    """Make a rule live from the next micro-batch; the version that was live retires."""
    _set_status(app, name, "live", number, author, reason)


@rules_.command(example="fraudlake rules retire tiny_then_huge")
@click.argument("name")
@click.option("--version", "number", type=int, help="Version of the rule.  [default: all]")
@signed
@click.pass_obj
def retire(app: App, /, name: str, number: int | None, author: str | None, reason: str | None) -> None:
    """Stop evaluating a rule from the next micro-batch; its alerts stay."""
    from fraudlake.detection import rule_table

    lake = _open(app)
    _say(app, rule_table.retire(lake.store, name, person_of(lake.store, author), reason, number))


@rules_.command(example="fraudlake rules diff tiny_then_huge --from 1 --to 3")
@click.argument("name")
@click.option("--from", "first", type=int, help="First version.  [default: the one before the second]")
@click.option("--to", "second", type=int, help="Second version.  [default: the newest]")
@click.pass_obj
def diff(app: App, /, name: str, first: int | None, second: int | None) -> None:
    """Show the fields in which two versions of a rule differ."""
    from fraudlake.detection import rule_table

    rules = rule_table.read(app.open_existing())
    after = rules.version_of(name, second)
    if first is None and after.version == 1:
        raise UsageError(f"version 1 of {name} is the first: there is no version to compare it with")
    before = rules.version_of(name, first or after.version - 1)
    old, new = ({"kind": version.rule.kind, **definition(version)} for version in (before, after))
    changed = {field: (old.get(field), new.get(field)) for field in {**old, **new} if old.get(field) != new.get(field)}
    lines = [f"  {field}: {was!r} -> {now!r}" for field, (was, now) in changed.items()]
    result = {"name": name, "from": before.version, "to": after.version, "changed": changed}
    app.say(result, "\n".join([f"{before} -> {after}", *(lines or ["  no difference"])]))


@rules_.command(example="fraudlake rules apply rules.toml --yes")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Change the rules. Without this flag, only show the changes.")
@signed
@click.pass_obj
def apply(app: App, /, file: Path | None, yes: bool, author: str | None, reason: str | None) -> None:
    """Replace the evaluated rules by those of FILE; drafts stay.

    FILE is a TOML file with [[rules]] entries; an entry may say status = "shadow". Without FILE, the rules of the
    settings are used.
    """
    from fraudlake.detection import rule_table
    from fraudlake.rules import rule_file

    settings = app.settings_of_lake()
    wanted: Sequence[tuple[Rule, Status]] = (
        rule_file.read(file) if file else [(rule, "live") for rule in settings.rules]
    )
    rule_table.require_valid([rule for rule, _ in wanted], settings)
    if yes:
        lake = _open(app)
        _say(app, rule_table.apply(lake, wanted, person_of(lake.store, author), reason))
    else:
        changes = rule_table.plan(rule_table.read(app.open_existing()), wanted)
        _say(app, changes, "add --yes to apply the changes" if changes else None)


def note_other_rules(lake: Lake) -> None:
    """Print a note if the settings have rules that are not live, since settings apply only to a new lake."""
    from fraudlake.detection import rule_table
    from fraudlake.settings import Settings

    wanted = [rule for rule in lake.settings.rules if rule not in Settings.model_construct().rules]
    live = [version.rule for version in rule_table.read(lake).live]
    others = [rule.name for rule in wanted if rule not in live]
    if others:
        console.print(
            f"the settings have rules that are not live in this lake ({', '.join(others)}): "
            "'fraudlake rules apply' shows what they would change",
            markup=False,
            soft_wrap=True,
        )


def _named(sql: Path | None, name: str | None) -> Rule:
    """Return a query as a rule, after checking its name."""
    from pydantic import ValidationError

    from fraudlake.rules.kinds.pattern import PatternRule

    rule = query_of(Path(str(sql)), name)
    try:
        return PatternRule.model_validate(rule.model_dump(exclude_defaults=True))
    except ValidationError as error:
        raise UsageError(f"--name {name}: {error.errors()[0]['msg'].lower()}") from None


def _set_status(app: App, name: str, status: Any, number: int | None, author: str | None, reason: str | None) -> None:
    from fraudlake.detection import rule_table

    lake = _open(app)
    _say(app, rule_table.set_status(lake.store, name, status, person_of(lake.store, author), reason, number))


def _open(app: App) -> Lake:
    """Open the lake, and create it or its missing tables only if needed, since that starts Spark."""
    try:
        return app.open_existing()
    except FraudlakeError:
        return app.open()


def _say(app: App, changes: Sequence[RuleVersion], hint: str | None = None) -> None:
    lines = [f"{version}: {version.status}" for version in changes] or ["nothing changes"]
    app.say({"changes": [as_dict(version) for version in changes]}, "\n".join([*lines, *([hint] if hint else [])]))
