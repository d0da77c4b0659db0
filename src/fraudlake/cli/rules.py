"""Commands that work on rules: rules check, backtest."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake.cli.app import RULES, App, cli, options
from fraudlake.cli.progress import timed
from fraudlake.errors import FraudlakeError, UsageError, first_line

if TYPE_CHECKING:
    from fraudlake.detection.backtest import Agreement, Report
    from fraudlake.rules.kinds import Rule
    from fraudlake.settings import Settings

_DAY = click.DateTime(["%Y-%m-%d"])


@cli.group(name="rules")
def rules_() -> None:
    """Rules as data: any row pattern, threshold or window, tried on history."""


def _source(command: Any) -> Any:
    sql = click.option("--sql", "file", type=click.Path(path_type=Path), help="A Flink query over MATCH_RECOGNIZE.")
    return click.argument("name", required=False)(sql(command))


@rules_.command()
@_source
@options("columns", *RULES)
@click.pass_obj
def check(app: App, /, name: str | None, file: Path | None, **flags: str | None) -> None:
    """Say what is wrong with a rule, or with all, without a lake.

    NAME is a rule of the settings; without it and without --sql all of them are checked.
    """
    from fraudlake.rules import query

    settings = app.settings(**flags)
    rules = [_rule(settings, name, file)] if name or file else list(settings.known_rules)
    columns = query.columns(settings.columns)
    for rule in rules:
        rule.check(columns)
    valid = [{"name": rule.name, "kind": rule.kind} for rule in rules]
    app.say({"valid": valid}, "\n".join(f"{rule.name}: a valid rule of kind {rule.kind}" for rule in rules))


@rules_.command()
@_source
@click.option("--from", "first", type=_DAY, help="First day (UTC).  [default: silver's first]")
@click.option("--to", "last", type=_DAY, help="Last day (UTC).  [default: silver's last]")
@click.option("--matches", type=click.Path(path_type=Path), help="File for the alerts: a JSON object a line.")
@options("columns", *RULES)
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
    """Try a rule on the transactions that silver holds, in event-time order; nothing is changed.

    NAME is a rule of the settings; --sql gives a query that is none yet.
    """
    from fraudlake import steps
    from fraudlake.rules import query

    settings = app.settings(**flags)
    rule = _rule(settings, name, file)
    rule.check(query.columns(settings.columns))
    lake = app.open_existing(**flags)
    days = (first.date() if first else None, last.date() if last else None)
    with timed("backtest") as progress:
        report, alerts = steps.backtest(lake, rule, *days)
        progress.append(f"{report.transactions:,} transactions, {report.alerts:,} alerts")
    if matches is not None:
        _write(matches, alerts["measures"].to_pylist())
    app.say(report.as_dict(), _text(report))


def _rule(settings: Settings, name: str | None, file: Path | None) -> Rule:
    if (name is None) == (file is None):
        raise UsageError("give either the NAME of a rule or --sql FILE")
    if file is not None:
        from fraudlake.rules.pattern import PatternRule

        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--sql {file}: {first_line(error)}") from None
        return PatternRule.model_construct(kind="pattern", name=file.name, sql=text)
    for rule in settings.known_rules:
        if rule.name == name:
            return rule
    known = ", ".join(rule.name for rule in settings.known_rules)
    raise UsageError(f"there is no rule '{name}'; there are {known}")


def _write(file: Path, lines: list[str]) -> None:
    try:
        file.write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise FraudlakeError(f"--matches {file}: {first_line(error)}") from None


def _text(report: Report) -> str:
    span = f"{report.first} to {report.last}" if report.first else "no day"
    lines = [
        f"{report.rule} ({report.kind}) over {report.transactions:,} transactions, {span}:",
        f"  {report.alerts:,} alerts on {report.accounts:,} accounts, amount at risk {report.amount_at_risk:,.2f}",
        f"  against Flink's label: {_shares(report.by_label)}",
        f"  against verdicts: {_shares(report.by_verdict)}",
        *(f"  {day}: {count:,} alerts" for day, count in report.alerts_per_day.items()),
        *(f"  {story}" for story in report.samples),
    ]
    return "\n".join(lines)


def _shares(agreement: Agreement) -> str:
    def share(value: float | None, part: int, whole: int) -> str:
        return f"{'unknown' if value is None else f'{value:.3f}'} ({part:,} of {whole:,})"

    precision = share(agreement.precision, agreement.right_alerts, agreement.alerts_with_truth)
    return f"precision {precision}, recall {share(agreement.recall, agreement.detected_fraud, agreement.fraud)}"
