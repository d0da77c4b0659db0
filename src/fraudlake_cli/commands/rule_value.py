"""The command that says what each rule found that the others did not: rules value."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from fraudlake.errors import FraudlakeError
from fraudlake.text.counts import counted
from fraudlake_cli.app import App
from fraudlake_cli.commands.rules import days, rules_, weighted
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fraudlake.detection.rule_value import RuleValue, RuleValues
    from fraudlake.review.window import Window
    from fraudlake_desk.queue.precision import Precision

_TRUTHS = {"verdicts": "verdicts", "labels": "Flink's label, as none has a verdict"}


@rules_.command(example="fraudlake rules value --from 2026-03-01 --to 2026-03-31")
@days
@click.pass_obj
def value(app: App, /, first: datetime | None, last: datetime | None) -> None:
    """Say what each live rule found that no other live rule found.

    These are alerts, cases, payments, frauds with their amount, and false alarms. A rule alone found a payment if no
    other live rule has an alert in the same case, nor an alert with the payment. Rules that find no fraud alone are
    named. Nothing is evaluated again, and nothing is changed.
    """
    from fraudlake import api
    from fraudlake.review import payments
    from fraudlake_desk.queue import precision, reviewed

    lake = app.open_existing()
    in_range = payments.days_between(lake.store, first.date() if first else None, last.date() if last else None)
    if in_range is None:
        raise FraudlakeError("there are no transactions yet: run 'fraudlake run'")
    with console.status("counting what the rules have found"):
        values = api.rule_values(lake, in_range.first, in_range.last)
        of_draws = precision.measure_rules(lake.store, reviewed.read_reviewed(lake), in_range)
    precisions = {one.rule: of_draws.get((one.rule, one.version), precision.NONE) for one in values.rules}
    result = {
        "from": in_range.first,
        "to": in_range.last,
        **values.as_dict(),
        "weighted": {rule: of.as_dict()["weighted"] for rule, of in precisions.items()},
    }
    app.say(result, "\n".join(_lines(values, in_range, precisions)))


def _lines(values: RuleValues, of_days: Window, precisions: Mapping[str, Precision]) -> Iterator[str]:
    yield (
        f"{counted(len(values.rules), 'live rule')}, alerts of {of_days.first} to {of_days.last}; "
        "in parentheses what no other live rule found:"
    )
    for one in values.rules:
        yield from _rule_lines(one, precisions[one.rule], values.truth is not None)
    yield from _notes(values)


def _rule_lines(one: RuleValue, precision: Precision, is_decided: bool) -> Iterator[str]:
    found, alone = one.found, one.alone
    yield (
        f"{one.rule} version {one.version}: {found.alerts:,} ({alone.alerts:,}) alerts, "
        f"{found.cases:,} ({alone.cases:,}) cases, {found.payments:,} ({alone.payments:,}) payments"
    )
    if not is_decided or not found.alerts:
        return
    share = "unknown" if one.precision is None else f"{one.precision:.3f}"
    yield (
        f"  {found.frauds:,} ({alone.frauds:,}) frauds, amount {found.amount:,.2f} ({alone.amount:,.2f}); "
        f"{found.false_alarms:,} ({alone.false_alarms:,}) false alarms of {_decided(one)}; precision {share}"
    )
    if precision.of_queues:
        yield weighted(precision)


def _decided(one: RuleValue) -> str:
    return f"{one.found.decided:,} ({one.alone.decided:,}) decided alerts"


def _notes(values: RuleValues) -> Iterator[str]:
    """Describe what decides alerts, and which rules find nothing that the others do not find."""
    if values.without_case:
        alerts = counted(values.without_case, "alert")
        yield f"{alerts} in no case yet, each payment counted as a case: run 'fraudlake aggregate'"
    if not any(one.found.alerts for one in values.rules):
        yield "no live rule has an alert on these days"
    elif values.truth is None:
        yield "no payment of these alerts has a verdict or a label: nothing says which alerts are right"
    else:
        yield f"alerts are decided by {_TRUTHS[values.truth]}"
        yield from _judgements(values)


def _judgements(values: RuleValues) -> Iterator[str]:
    from fraudlake.detection.rule_value import LEAST

    redundant = [f"{one.rule}, by {_decided(one)}" for one in values.rules if one.is_redundant]
    if redundant:
        yield f"finds no fraud that the others do not find: {'; '.join(redundant)}"
    if len(redundant) > 1:
        yield "of rules that find the same, each is named: retire one, then look again"
    few = [f"{one.rule}, by {_decided(one)}" for one in values.rules if not (one.is_judged or one.alone.frauds)]
    if few:
        yield f"not judged: {'; '.join(few)}: {LEAST} are needed, in parentheses as well if there are so many alerts"
