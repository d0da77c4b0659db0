"""Commands that try rules: rules check, backtest, show."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import FraudlakeError, UsageError, file_reason
from fraudlake.text import text_file
from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.command import Day
from fraudlake_cli.output.progress import console, timed
from fraudlake_cli.output.summary import approximately

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fraudlake.detection.comparison import Comparison
    from fraudlake.detection.report import Agreement, Report
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.relations import Finding
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake.settings import Settings
    from fraudlake_desk.queue.precision import Precision

_DAY = Day()
_SHOWN = 30
"""Most findings of rules that are printed."""


@cli.group(name="rules", example="fraudlake rules backtest tiny_then_huge --from 2026-03-01")
def rules_() -> None:
    """Try rules on history, run them in the shadow, and switch them on and off without a restart."""


def _source(command: Any) -> Any:
    sql = click.option("--sql", "file", type=click.Path(path_type=Path), help="A Flink SQL query with MATCH_RECOGNIZE.")
    return click.argument("name", required=False)(sql(command))


def days(command: Any) -> Any:
    """Add the options for the first and the last day of silver to a command."""
    first = click.option("--from", "first", type=_DAY, help="First day (UTC).  [default: silver's first]")
    last = click.option("--to", "last", type=_DAY, help="Last day (UTC).  [default: silver's last]")
    return first(last(command))


@rules_.command(example="fraudlake rules check --sql query.sql")
@_source
@click.option("--evaluated", is_flag=True, help="Check the rules that the lake evaluates, live or shadow.")
@options("columns")
@click.pass_obj
def check(app: App, /, name: str | None, file: Path | None, evaluated: bool, **flags: str | None) -> None:
    """Check whether a rule, or every rule, is valid, and what can be proved of it, without evaluating it.

    NAME is a rule of the settings. Without NAME and --sql, all rules of the settings are checked, against the columns
    of the lake if there is one; --evaluated checks those of the lake. Rules that can never alert, and rules
    that are contained in another, are named.
    """
    from fraudlake.rules import relations
    from fraudlake.rules.columns import query_columns

    if evaluated and (name or file):
        raise UsageError("--evaluated checks all rules of the lake: leave out NAME and --sql")
    settings = app.settings_of_lake(**flags)
    rules = [_rule(settings, name, file)] if name or file else list(settings.rules)
    if evaluated:
        from fraudlake.detection import rule_table

        versions = rule_table.read(app.open_existing(**flags)).evaluated
        rules = [*{version.rule.name: version.rule for version in versions}.values()]
    columns = query_columns(settings.silver_columns)
    for rule in rules:
        rule.check(columns, settings.entities)
    findings = relations.find(rules, columns)
    valid = [{"name": rule.name, "kind": rule.kind} for rule in rules]
    result = {"valid": valid, "findings": [asdict(finding) for finding in findings]}
    lines = [*(f"{rule.name}: a valid rule of kind {rule.kind}" for rule in rules), *_describe(findings)]
    app.say(result, "\n".join(lines))


@rules_.command(example="fraudlake rules backtest tiny_then_huge --from 2026-03-01 --matches matches.jsonl")
@_source
@days
@click.option("--matches", type=click.Path(path_type=Path), help="File for the alerts, one JSON object per line.")
@options("columns")
@click.pass_obj
def backtest(
    app: App,
    /,
    name: str | None,
    file: Path | None,
    first: datetime | None,
    last: datetime | None,
    matches: Path | None,
    **flags: str | None,
) -> None:
    """Try a rule on silver's transactions, in event-time order, without changing anything.

    NAME is a rule of the lake, in its newest version; --sql tries a query that is not a rule yet. A rule of the kind
    model is tried on the predictions of these transactions.
    """
    from fraudlake import api
    from fraudlake.detection import rule_table
    from fraudlake.detection.backtest import matches_in_order

    _require_one(name, file)
    query = query_of(file) if file else None
    lake = app.open_existing(**flags)
    rule = query or rule_table.read(lake).version_of(str(name)).rule
    in_range = (first.date() if first else None, last.date() if last else None)
    with timed("backtest") as progress:
        report, alerts = api.backtest(lake, rule, *in_range)
        progress.append(f"{counted(report.transactions, 'transaction')}, {counted(report.alerts, 'alert')}")
    if matches is not None:
        _write(matches, matches_in_order(rule, alerts))
    app.say(report.as_dict(), _text(report))


@rules_.command(example="fraudlake rules show tiny_then_huge")
@click.argument("name")
@click.option("--version", "number", type=int, help="Version of the rule.  [default: the newest]")
@click.option("--from", "first", type=_DAY, help="First day (UTC).  [default: the first that the rule has seen]")
@click.option("--to", "last", type=_DAY, help="Last day (UTC).  [default: silver's last]")
@click.pass_obj
def show(app: App, /, name: str, number: int | None, first: datetime | None, last: datetime | None) -> None:
    """Show a rule, its changes, and the alerts that it has raised in the stream, live or in the shadow."""
    from fraudlake.detection import comparison, rule_table
    from fraudlake.review.window import Window
    from fraudlake_desk.queue import precision as precision_
    from fraudlake_desk.queue import reviewed

    lake = app.open_existing()
    rules = rule_table.read(lake)
    version = rules.version_of(name, number)
    changes = rule_table.changes(lake, name) or rules.versions_of(name)
    in_range = (first.date() if first else None, last.date() if last else None)
    with console.status("reading what the rule has raised"):
        compared = comparison.compare(lake, rules, version, *in_range)
        past = reviewed.read_reviewed(lake)
        precision = None
        if past is not None and compared.report.first and compared.report.last:
            of = precision_.measure_rules(lake.store, past, Window(compared.report.first, compared.report.last), name)
            precision = of.get((name, version.version))
    result = {**as_dict(version), "changes": [as_dict(change) for change in changes], "raised": compared.as_dict()}
    result["precision"] = precision.as_dict() if precision else None
    lines = [
        f"{version}: {version.status}",
        *(f"  {field} = {value!r}" for field, value in definition(version).items()),
        *(f"  {described(change)}" for change in changes),
        _text(compared.report),
        *_overlaps(compared),
        *([weighted(precision)] if precision else []),
    ]
    app.say(result, "\n".join(lines))


def as_dict(version: RuleVersion) -> dict[str, Any]:
    """Return a version of a rule with its current status, for ``--json``."""
    return {
        "name": version.rule.name,
        "version": version.version,
        "kind": version.rule.kind,
        "status": version.status,
        "definition": definition(version),
        "author": version.author,
        "reason": version.reason,
        "changed_at": version.changed_at,
    }


def definition(version: RuleVersion) -> dict[str, Any]:
    """Return the fields of a rule that define its behaviour."""
    return version.rule.model_dump(mode="json", exclude_defaults=True, exclude={"name", "kind"})


def described(change: RuleVersion) -> str:
    """Describe a change of a rule: when, by whom, and why."""
    at = f"{change.changed_at:%Y-%m-%d %H:%M:%S} " if change.changed_at else ""
    by = f" by {change.author}" if change.author else ""
    return f"{at}version {change.version}: {change.status}{by}{f': {change.reason}' if change.reason else ''}"


def query_of(file: Path, name: str | None = None) -> Rule:
    """Read a query with MATCH_RECOGNIZE as a rule, by default with the name of its file.

    Raises:
        UsageError: the file cannot be read.
    """
    from fraudlake.rules.kinds.pattern import PatternRule

    try:
        text = text_file.text(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"--sql {file}: {file_reason(error)}") from None
    return PatternRule.model_construct(kind="pattern", name=name or file.name, sql=text)


def _require_one(name: str | None, file: Path | None) -> None:
    if (name is None) == (file is None):
        raise UsageError("give either the NAME of a rule or --sql FILE")


def _rule(settings: Settings, name: str | None, file: Path | None) -> Rule:
    from fraudlake.rules.rule_set import RuleSet

    _require_one(name, file)
    return query_of(file) if file else RuleSet.of(settings.rules).version_of(str(name)).rule


def _describe(findings: Sequence[Finding]) -> list[str]:
    """Describe what is proved of rules, the most useful first."""
    kinds = ("never", "contained", "apart", "overlap")
    shown = [str(finding) for kind in kinds for finding in findings if finding.kind == kind]
    undecided = sum(finding.kind == "undecided" for finding in findings)
    more = [f"{counted(len(shown) - _SHOWN, 'further finding')}: --json lists them"] if len(shown) > _SHOWN else []
    of_others = [f"{counted(undecided, 'pair')} of rules not decided: --json lists them"] if undecided else []
    return [*shown[:_SHOWN], *more, *of_others]


def _overlaps(compared: Comparison) -> list[str]:
    return [
        f"  beside {other.rule} version {other.version}: {other.both:,} alerts overlap its alerts in account and time, "
        f"{other.only_this:,} do not; {other.only_other:,} are the other's alone"
        for other in compared.overlaps
    ]


def weighted(precision: Precision) -> str:
    """Describe the precision of a rule that is weighted by the draws of review queues."""
    return (
        f"  weighted by the draws of review queues: precision {approximately(precision.weighted, '.3f')}, of "
        f"{counted(precision.of_queues, 'alert')} of days with a queue; {precision.drawn:,} of them are of accounts "
        "that were drawn"
    )


def _write(file: Path, lines: Iterable[str]) -> None:
    try:
        with file.open("w") as written:
            written.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise FraudlakeError(f"--matches {file}: {file_reason(error)}") from None


def _text(report: Report) -> str:
    span = f"{report.first} to {report.last}" if report.first else "no day"
    lines = [
        f"{report.rule} ({report.kind}) over {counted(report.transactions, 'transaction')}, {span}:",
        f"  {counted(report.alerts, 'alert')} on {counted(report.keys, report.entity.replace('_', ' '))}, "
        f"amount at risk {report.amount_at_risk:,.2f}",
        *([f"  {counted(report.suppressed, 'further alert')} that entries suppress"] if report.suppressed else []),
        f"  against Flink's label: {shares(report.by_label)}",
        f"  against verdicts: {shares(report.by_verdict)}",
        *(f"  {day}: {counted(count, 'alert')}" for day, count in report.alerts_per_day.items()),
        *(f"  {story}" for story in report.samples),
    ]
    return "\n".join(lines)


def shares(agreement: Agreement) -> str:
    """Describe the precision and the recall against a source of the truth."""

    def share(value: float | None, part: int, whole: int) -> str:
        return f"{'unknown' if value is None else f'{value:.3f}'} ({part:,} of {whole:,})"

    precision = share(agreement.precision, agreement.right_alerts, agreement.alerts_with_truth)
    return f"precision {precision}, recall {share(agreement.recall, agreement.detected_fraud, agreement.fraud)}"
