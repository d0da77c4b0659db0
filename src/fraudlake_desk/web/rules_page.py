"""The rules' pages: figures of each rule, backtests of changed limits, and the form that saves a draft."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from fraudlake.approvals import gate, log
from fraudlake.detection import rule_table
from fraudlake.detection.alert_changes import APPEAR, GONE
from fraudlake.errors import UsageError
from fraudlake.review import event_log
from fraudlake_desk import list_entries, lists, rules
from fraudlake_desk.documents import charts
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.lookup.money import amount
from fraudlake_desk.queue import precision
from fraudlake_desk.queue.reviewed import Reviewed
from fraudlake_desk.web import forms, lists_page
from fraudlake_desk.web.errors import MissingError, PageError
from fraudlake_desk.web.names import segment
from fraudlake_desk.web.site import Site, done, number, share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.detection.alert_changes import WhatIf
    from fraudlake.detection.report import Agreement, Report
    from fraudlake.lake.store import Store
    from fraudlake.review.window import Window
    from fraudlake.rules.rule_set import RuleSet, RuleVersion, Status
    from fraudlake_desk.queue.precision import Precision
    from fraudlake_desk.rules import RuleFigures

_DAYS = 28
_CLOSED = 50
"""Most ended entries that the page shows."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def all_rules(request: Request) -> Response:
        store = site.store_of(request.state.person)
        present, unreadable = rules.read(store)
        figures = rules.figures(store, present, _DAYS)
        cases = {one.version.rule.name: one.cases for one in figures.rules}
        pairs = [
            {"first": first, "second": second, "cases": both, "of_first": _share(both, cases.get(first)),
             "of_second": _share(both, cases.get(second))}
            for (first, second), both in sorted(figures.overlap.items(), key=lambda pair: (-pair[1], pair[0]))
        ]  # fmt: skip
        shown = [{**vars(one), "drawing": _spark(one), "interval": _interval(one)} for one in figures.rules]
        view = {"days": figures.days, "rules": shown, "missed": figures.missed, "unreadable": unreadable}
        listed = list_entries.listed(store, present)
        return site.page(
            request,
            "rules.html",
            page="Rules",
            figures=view,
            pairs=pairs,
            notice=lists_page.ended(request, listed),
            lists=lists.read_all(store, present),
            entries=[one for one in listed if one.is_open],
            closed=[one for one in listed if not one.is_open][:_CLOSED],
            longest=event_log.LONGEST,
        )

    def one_rule(request: Request) -> Response:
        store, present, version = _store_and_version(site, request)
        figures = rules.figures(store, present, _DAYS)
        raised = next((one for one in figures.rules if one.version.rule.name == version.rule.name), None)
        drawing = charts.bars(figures.days, raised.per_day, "alerts a day") if raised else ""
        changes = rules.changes(store, version.rule.name) or [version]
        return site.page(
            request,
            "rule.html",
            page="Rules",
            notice=_saved(request.query_params.get("saved"), changes),
            version=version,
            drawing=drawing,
            definition=rules.definition(version),
            changes=[{**vars(change), "limits": change.rule.limits} for change in changes],
            limits=[_slider(name, limit) for name, limit in version.rule.limits.items()],
            changeable=_changeable(present.versions_of(version.rule.name)) if gate.keys(store) > 1 else [],
            longest=log.LONGEST["reason"],
        )

    def backtest(request: Request) -> Response:
        store, _, version = _store_and_version(site, request)
        moved = _limits(version, request.query_params)
        if not moved:
            tried = rules.backtest(store, version.rule)
            return _tried(request, {}, tried.window, tried.report, [(*row, "") for row in _figures(tried.report)])
        window, changes = rules.what_if(store, version.rule, rules.with_limits(version.rule, moved))
        before, after = (_figures(report) for report in (changes.before, changes.after))
        rows = [(name, new, old) for (name, old), (_, new) in zip(before, after, strict=True)]
        return _tried(request, moved, window, changes.after, rows, _what_if(store, changes))

    def _tried(
        request: Request,
        moved: dict[str, float],
        window: Window,
        report: Report,
        rows: list[tuple[str, str, str]],
        changes: dict[str, Any] | None = None,
    ) -> Response:
        per_day = [report.alerts_per_day.get(str(day), 0) for day in window.days]
        drawing = charts.bars(window.days, per_day, "alerts a day")
        view: dict[str, Any] = {"moved": moved, "report": report, "rows": rows, "changes": changes, "drawing": drawing}
        return site.page(request, "backtest.html", page="Rules", **view)

    async def draft(request: Request) -> Response:
        fields = await forms.read_of_author(request, site.access)
        reason = fields.get("reason") or None

        def add() -> RuleVersion:
            store, _, version = _store_and_version(site, request)
            moved = _limits(version, fields)
            if not moved:
                raise PageError(f"{version} has these limits already: move one, and save again")
            rule = rules.with_limits(version.rule, moved)
            return rule_table.add_draft(store, rule, request.state.person.name, reason)

        added = await run_in_threadpool(add)
        return done(request, f"/rules/{segment(added.rule.name)}?saved={added.version}")

    async def ask(request: Request) -> Response:
        fields = await forms.read_of_author(request, site.access)
        number, _, status = fields.get("change", "").partition(" ")
        try:
            await forms.carried_out(lambda: _ask(site, request, number, status, fields.get("reason")))
        except gate.WaitingError as waits:
            return done(request, f"/approvals?done={waits.number}")
        return done(request, f"/rules/{segment(request.path_params['name'])}")

    return [
        Route("/rules", all_rules),
        Route("/rules/{name:text}", one_rule),
        Route("/rules/{name:text}/backtest", backtest),
        Route("/rules/{name:text}/draft", draft, methods=["POST"]),
        Route("/rules/{name:text}/ask", ask, methods=["POST"]),
    ]


def _store_and_version(site: Site, request: Request) -> tuple[Store, RuleSet, RuleVersion]:
    """Return the store, its rules, and the live version of the rule in the address, otherwise its newest."""
    store = site.store_of(request.state.person)
    (present, unreadable), name = rules.read(store), request.path_params["name"]
    try:
        newest = present.version_of(name)
    except UsageError as error:
        raise MissingError(unreadable.get(name, str(error))) from None
    return store, present, next((one for one in present.live if one.rule.name == name), newest)


_CHANGES: dict[Status, dict[Status, str]] = {
    "draft": {"shadow": "run version {} in the shadow", "live": "make version {} live"},
    "shadow": {"live": "make version {} live", "retired": "retire version {}"},
    "live": {"shadow": "run version {} in the shadow only", "retired": "retire version {}"},
    "retired": {"shadow": "run version {} in the shadow", "live": "make version {} live"},
}
"""What can be asked for a version of a rule, by its status."""


def _changeable(versions: Sequence[RuleVersion]) -> list[tuple[str, str]]:
    """Return what can be asked for versions of a rule, the newest first: the field of the form, and its words."""
    return [
        (f"{version.version} {status}", text.format(version.version))
        for version in reversed(versions)
        for status, text in _CHANGES[version.status].items()
    ]


def _ask(site: Site, request: Request, number: str, status: str, reason: str | None) -> None:
    """Ask a second person for another status of a version of a rule.

    Raises:
        WaitingError: it is asked for.
        PageError: the lake needs one person only, or there is no such version or status.
    """
    store, _, version = _store_and_version(site, request)
    person, name = request.state.person.name, version.rule.name
    if gate.keys(store) < 2:
        raise PageError(f"{name}: this lake needs one person only: use 'fraudlake rules'")
    if not (number.isascii() and number.isdigit()):
        raise PageError(f"{name}: choose what to ask for")
    match status:
        case "retired":
            rule_table.retire(store, name, person, reason, int(number))
        case "shadow" | "live":
            rule_table.set_status(store, name, status, person, reason, int(number))
        case _:
            raise PageError(f"{name}: choose what to ask for")


def _saved(text: str | None, changes: list[RuleVersion]) -> str | None:
    """Return the notice about a saved draft; None if there is no such version."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise PageError(f"saved: give the number of a version, not '{shown(text)}'")
    statuses = {str(change.version): change.status for change in changes}
    return f"Version {text} is a draft now." if statuses.get(text) == "draft" else None


def _limits(version: RuleVersion, query: Mapping[str, str]) -> dict[str, float]:
    """Return the given limits that differ from the rule's."""
    moved = {}
    for name, now in version.rule.limits.items():
        try:
            value = float(query.get(name, now))
        except ValueError:
            raise PageError(f"{name}: give a number") from None
        if not math.isfinite(value):
            raise PageError(f"{name}: give a number")
        if value != now:
            moved[name] = value
    return moved


def _slider(name: str, value: float) -> dict[str, Any]:
    """Return the range of a slider: up to three times the limit, or all of 0 to 1 for a probability.

    A limit that is not positive, such as that of a ``z_score``, moves on both sides of 0.
    """
    if name == "threshold":
        return {"name": name, "value": value, "low": 0.01, "high": 0.99, "step": 0.01}
    high = 3 * abs(value) or 100.0
    step = 10.0 ** (math.floor(math.log10(high)) - 2)
    return {"name": name, "value": value, "low": step if value > 0 else -high, "high": high, "step": step}


def _spark(one: RuleFigures) -> str:
    return charts.spark(one.per_day, f"alerts a day of {one.version.rule.name}")


def _interval(one: RuleFigures) -> str:
    weighted = one.precision.weighted
    return charts.interval(weighted.value, weighted.low, weighted.high, "weighted precision")


def _share(both: int, cases: int | None) -> float | None:
    return both / cases if cases else None


def _figures(report: Report) -> list[tuple[str, str]]:
    return [
        ("Transactions", number(report.transactions)),
        ("Alerts", number(report.alerts) + (f" and {report.suppressed:,} suppressed" if report.suppressed else "")),
        ("Accounts" if report.entity == "account" else report.entity.capitalize(), number(report.keys)),
        ("Amount at risk", amount(report.amount_at_risk)),
        ("Precision, by verdicts", _precision(report.by_verdict)),
        ("Precision, by Flink's label", _precision(report.by_label)),
        ("Recall, by Flink's label", share(report.by_label.recall) or "unknown"),
    ]


def _what_if(store: Store, changes: WhatIf) -> dict[str, Any]:
    """Return what the page shows of the alerts that appear and go."""
    weighted = precision.measure_changes(changes.rows, Reviewed.read(store))
    cases = changes.cases
    load = " → ".join(f"{mean:.1f}" for mean in cases.load)
    sides = []
    of_sides = ((APPEAR, "appear", changes.appear, cases.appear), (GONE, "go", changes.gone, cases.gone))
    for name, title, report, changed in of_sides:
        figures = [
            ("Alerts", number(report.alerts)),
            ("Amount at risk", amount(report.amount_at_risk)),
            ("Precision, by verdicts", _precision(report.by_verdict)),
            ("Precision, weighted by draws", _weighted(weighted[name])),
            ("Precision, by Flink's label", _precision(report.by_label)),
            ("Cases", number(len(changed))),
            ("Accounts", number(len(changes.accounts[name]))),
        ]
        examples = changes.examples[name]
        nearest = bool(examples) and examples[0].distance is not None
        sides.append({"title": title, "figures": figures, "examples": examples, "nearest": nearest})
    return {"stay": number(changes.stay), "changed": number(len(cases.changed)), "load": load, "sides": sides}


def _weighted(of: Precision) -> str:
    weighted = of.weighted
    if not of.of_queues or weighted.value is None:
        return "unknown"
    return f"{share(weighted.value)} ({share(weighted.low)} to {share(weighted.high)})"


def _precision(agreement: Agreement) -> str:
    counts = f"{agreement.right_alerts:,} of {agreement.alerts_with_truth:,}"
    return f"{share(agreement.precision)} ({counts})" if agreement.alerts_with_truth else "unknown"
