"""The command that says what a changed rule would do: rules whatif."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import FraudlakeError, UsageError, file_reason
from fraudlake.text import json_text
from fraudlake.text.counts import counted
from fraudlake_cli.app import App, options
from fraudlake_cli.commands.rules import days, query_of, rules_, shares
from fraudlake_cli.output.progress import timed
from fraudlake_cli.output.summary import approximately

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fraudlake.detection.alert_changes import Example, WhatIf
    from fraudlake.detection.report import Report
    from fraudlake.lake import Lake
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleSet
    from fraudlake_desk.queue.precision import Precision

_SHOWN = 10
"""Most accounts that are named."""


@rules_.command(example="fraudlake rules whatif busy --set above=12 --from 2026-03-01")
@click.argument("rule", metavar="NAME|FILE")
@click.option("--set", "changed", multiple=True, metavar="FIELD=NEW", help="Change a field of the rule; repeatable.")
@days
@click.option("--changes", type=click.Path(path_type=Path), help="File for the alerts that change, as JSON lines.")
@options("columns")
@click.pass_obj
def whatif(
    app: App,
    /,
    rule: str,
    changed: tuple[str, ...],
    first: datetime | None,
    last: datetime | None,
    changes: Path | None,
    **flags: str | None,
) -> None:
    """Say which alerts appear and go if a rule changes, without changing anything.

    NAME is a rule of the lake, in its newest version; FILE is a TOML file with one entry of [[rules]], or a query in a
    .sql file, whose name is the rule's. It is compared with the live rule of its name; without one, all of its alerts
    appear.
    """
    from fraudlake import api
    from fraudlake.detection import rule_table

    lake = app.open_existing(**flags)
    rules = rule_table.read(lake)
    tried = _changed(_rule(rules, rule), changed)
    live = next((one for one in rules.live if one.rule.name == tried.name), None)
    if live is not None and live.rule == tried:
        raise UsageError(f"{tried.name} is live as it is: change a field with --set FIELD=NEW, or give a FILE")
    in_range = (first.date() if first else None, last.date() if last else None)
    with timed("what if") as progress:
        result = api.what_if(lake, tried, *in_range)
        progress.append(f"{counted(result.after.transactions, 'transaction')}")
    weighted = _precisions(lake, result)
    if changes is not None:
        _write(changes, result)
    as_dict = {
        **result.as_dict(),
        "live_version": live.version if live else None,
        "precision": {side: one.as_dict() for side, one in weighted.items()},
    }
    app.say(as_dict, _text(result, f"live version {live.version}" if live else "nothing", weighted, lake))


def _rule(rules: RuleSet, name: str) -> Rule:
    """Return the rule of a lake by its name, or that of a file."""
    from fraudlake.rules import rule_file

    file = Path(name)
    if file.suffix == ".sql":
        return query_of(file, file.stem)
    if file.suffix != ".toml":
        return rules.version_of(name).rule
    read = rule_file.read(file)
    if len(read) != 1:
        raise UsageError(f"{file} has {counted(len(read), 'rule')}: give a file with one, or the NAME of a rule")
    return read[0][0]


def _changed(rule: Rule, changed: Sequence[str]) -> Rule:
    """Return a rule with other fields, whose values are JSON or else texts."""
    import json

    from fraudlake.rules import rule_file

    fields: dict[str, Any] = {}
    for one in changed:
        name, is_given, value = one.partition("=")
        if not is_given or not name.strip():
            raise UsageError(f"--set {one}: write FIELD=NEW, such as --set above=12")
        try:
            fields[name.strip()] = json.loads(value)
        except ValueError:
            fields[name.strip()] = value.strip()
    if fields.keys() & {"name", "kind"}:
        raise UsageError("--set changes no name and no kind: give a FILE")
    return rule_file.rule_of("--set", {**rule.model_dump(exclude_none=True), **fields}) if fields else rule


def _precisions(lake: Lake, result: WhatIf) -> Mapping[str, Precision]:
    """Return the precision of the alerts that appear and of those that go, weighted by the draws of review queues."""
    from fraudlake_desk.queue import precision, reviewed

    past = reviewed.read_reviewed(lake)
    return precision.measure_changes(result.rows, past)


def _write(file: Path, result: WhatIf) -> None:
    rows = result.rows.sort_by([("timestamp", "ascending"), ("alert_id", "ascending")])
    try:
        with file.open("w") as written:
            for batch in rows.to_batches(max_chunksize=10_000):
                written.writelines(f"{json_text.dumps(row)}\n" for row in batch.to_pylist())
    except OSError as error:
        raise FraudlakeError(f"--changes {file}: {file_reason(error)}") from None


def _text(result: WhatIf, before: str, weighted: Mapping[str, Precision], lake: Lake) -> str:
    after = result.after
    span = f"{after.first} to {after.last}" if after.first else "no day"
    cases = result.cases
    lines = [
        f"{after.rule} ({after.kind}) compared with {before}, "
        f"over {counted(after.transactions, 'transaction')}, {span}:",
        f"  {result.before.alerts:,} → {counted(after.alerts, 'alert')}: {result.appear.alerts:,} appear, "
        f"{result.gone.alerts:,} go, {result.stay:,} stay",
        *_suppressed(result),
        *_side("appear", result.appear, weighted["appear"]),
        *_side("go", result.gone, weighted["gone"]),
        f"  accounts: {_named(result.accounts['appear'])} appear; {_named(result.accounts['gone'])} go",
        f"  cases: {len(cases.appear):,} appear, {len(cases.gone):,} go, {len(cases.changed):,} have other alerts",
        *_load(result, lake.settings.queue_size),
        *_examples("appear", result.examples["appear"]),
        *_examples("go", result.examples["gone"]),
    ]
    return "\n".join(lines)


def _suppressed(result: WhatIf) -> list[str]:
    before, after = (one.suppressed for one in (result.before, result.after))
    return [f"  {before:,} → {counted(after, 'further alert')} that entries suppress"] if before or after else []


def _side(verb: str, report: Report, weighted: Precision) -> list[str]:
    if not report.alerts:
        return []
    on = f"on {counted(report.keys, report.entity.replace('_', ' '))}"
    lines = [
        f"  the {counted(report.alerts, 'alert')} that {verb}: {on}, amount at risk {report.amount_at_risk:,.2f}",
        f"    against Flink's label: {shares(report.by_label)}",
        f"    against verdicts: {shares(report.by_verdict)}",
    ]
    if weighted.of_queues:
        lines.append(
            f"    weighted by the draws of review queues: precision {approximately(weighted.weighted, '.3f')}, of "
            f"{counted(weighted.of_queues, 'alert')} of days with a queue"
        )
    return lines


def _named(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{len(names):,} ({', '.join(names[:_SHOWN])}{more})"


def _load(result: WhatIf, size: int) -> list[str]:
    of_days = [*result.cases.per_day.values()]
    if not of_days:
        return []
    before, after = result.cases.load
    most = [max(day[side] for day in of_days) for side in (0, 1)]
    return [f"  the queue of {size:,}: {before:.1f} → {after:.1f} cases a day, at most {most[0]:,} → {most[1]:,}"]


def _examples(verb: str, examples: Sequence[Example]) -> list[str]:
    if not examples:
        return []
    nearest = "closest to the limit" if examples[0].distance is not None else "the latest"
    return [f"  alerts that {verb}, {nearest}:", *(f"    {one.story}" for one in examples)]
