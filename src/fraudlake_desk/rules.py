"""Rules: computes figures of each rule for the pages, backtests changed limits, and saves them as drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.detection.list_entries import with_entries
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.review import cases
from fraudlake.review.window import Window
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleSet
from fraudlake.text import sql_text
from fraudlake.times import durations
from fraudlake_desk import list_entries
from fraudlake_desk.queue import precision
from fraudlake_desk.queue.reviewed import Reviewed
from fraudlake_desk.review import verdicts

if TYPE_CHECKING:
    from fraudlake.detection.alert_changes import WhatIf
    from fraudlake.detection.report import Range, Report
    from fraudlake.lake.store import Store
    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import RuleVersion
    from fraudlake_desk.queue.missed import Missed
    from fraudlake_desk.queue.precision import Precision

ROWS = 300_000
"""Most transactions of a backtest, which takes whole days from the latest on."""


@dataclass(frozen=True)
class RuleFigures:
    """The figures of a version of a rule on the days of :attr:`Figures.days`."""

    version: RuleVersion
    """The live version, otherwise the newest."""
    per_day: list[int]
    """Alerts of each day."""
    suppressed: int
    """Further alerts of these days, of any version, that list entries suppressed."""
    cases: int
    """Cases with an alert of the rule, in any version."""
    precision: Precision


@dataclass(frozen=True)
class Figures:
    """The figures of the rules."""

    days: list[date]
    rules: list[RuleFigures]
    overlap: dict[tuple[str, str], int]
    """Cases with alerts of both rules."""
    missed: Missed | None
    """What the queues of the latest four weeks found and missed; None if no draw is decided."""


def read(store: Store) -> tuple[RuleSet, dict[str, str]]:
    """Return the rule set, and for versions that this fraudlake cannot read, which are left out, the error by name."""
    table = tables.SILVER_RULES
    rows = store.query(f"SELECT * FROM {table.name}", table).to_pylist()
    readable_rows, unreadable = readable(rows)
    return RuleSet(()) if rows and not readable_rows else rule_table.as_rule_set(
        readable_rows, store.settings
    ), unreadable


def changes(store: Store, name: str) -> list[RuleVersion]:
    """Return the readable changes of a rule, the oldest first."""
    table = tables.SILVER_RULES
    rows = store.query(f"SELECT * FROM {table.name} ORDER BY change, version", table).to_pylist()
    return [rule_table.version_of(row) for row in readable(rows)[0] if row["name"] == name]


def readable(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of ``silver_rules`` that can be read, and the errors of the others by the name of the rule."""
    readable = []
    unreadable = {}
    for row in rows:
        try:
            rule_table.version_of(row)
        except FraudlakeError as error:
            unreadable[row["name"]] = str(error)
        else:
            readable.append(row)
    return readable, unreadable


def figures(store: Store, rules: RuleSet, days: int = 28) -> Figures:
    """Count the alerts of rules that are not retired, over the latest days with alerts."""
    shown: dict[str, RuleVersion] = {}
    for version in (*rules.versions, *rules.live):
        if version.status != "retired":
            shown[version.rule.name] = version
    raised = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)
    last = max((day for table in raised if (day := _last_day(store, table))), default=datetime.now(UTC).date())
    window = Window(last - timedelta(days=days - 1), last)
    live, shadow = (_per_day(store, table, window) for table in raised)
    with_rule = Counter[str]()
    overlap = Counter[tuple[str, str]]()
    for names, count in _cases_by_rules(store, window):
        with_rule.update(dict.fromkeys(names, count))
        overlap.update(dict.fromkeys(combinations(names, 2), count))
    reviewed = Reviewed.read(store)
    precisions = precision.measure_rules(store, reviewed, window)
    suppressed = list_entries.suppressed(store, window=window)
    of_rules = []
    for name, version in shown.items():
        counts = shadow if version.is_shadow else live
        key = (name, version.version)
        per_day = [counts.get((*key, day), 0) for day in window.days]
        of_rules.append(
            RuleFigures(version, per_day, suppressed.get(name, 0), with_rule[name], precisions.get(key, precision.NONE))
        )
    return Figures(window.days, of_rules, dict(overlap), reviewed.latest() if reviewed else None)


def _last_day(store: Store, table: tables.Table) -> date | None:
    (row,) = store.query(f"SELECT CAST(max(timestamp) AS DATE) AS day FROM {table.name}", table).to_pylist()
    day: date | None = row["day"]
    return day


def _cases_by_rules(store: Store, window: Window) -> Iterator[tuple[list[str], int]]:
    """Yield the names of each set of rules with common cases on some days, and the number of those cases."""
    table = tables.GOLD_CASES
    of_days = f"WHERE {cases.on_days(window)} GROUP BY rules"
    counted = store.query(f"SELECT rules, count(*) AS cases FROM {table.name} {of_days}", table)
    for row in counted.to_pylist():
        yield sorted({*row["rules"]}), row["cases"]


def _per_day(store: Store, table: tables.Table, window: Window) -> dict[tuple[str, int, date], int]:
    columns = "rule, rule_version AS version, CAST(timestamp AS DATE) AS day"
    of_days = f"SELECT {columns} FROM {table.name} WHERE {window.times}"
    rows = store.query(
        f"SELECT rule, version, day, count(*) AS alerts FROM ({of_days}) alerts GROUP BY rule, version, day", table
    )
    return {(row["rule"], row["version"], row["day"]): row["alerts"] for row in rows.to_pylist()}


def with_limits(rule: Rule, moved: Mapping[str, float]) -> Rule:
    """Return a rule with other limits.

    Raises:
        UsageError: the rule has no such limit, or the value is not valid.
    """
    from pydantic import ValidationError

    unknown = moved.keys() - rule.limits.keys()
    if unknown:
        raise UsageError(f"{rule.name} has no limit {', '.join(sorted(unknown))}")
    try:
        return RULE.validate_python({**rule.model_dump(exclude_none=True), **moved})
    except ValidationError as error:
        raise UsageError(f"{rule.name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def moved_limits(present: RuleSet, changed: RuleVersion) -> dict[str, float]:
    """Return the limits of a version that differ from the live version; empty without one, or if more differs."""
    live = next((one.rule for one in present.live if one.rule.name == changed.rule.name), None)
    limits = changed.rule.limits
    if live is None or live.limits.keys() != limits.keys():
        return {}
    if live.model_dump(exclude={*limits}) != changed.rule.model_dump(exclude={*limits}):
        return {}
    return {name: limit for name, limit in limits.items() if limit != live.limits[name]}


@dataclass(frozen=True)
class Backtest:
    """The figures of a rule over the latest days."""

    window: Window
    report: Report


def backtest(store: Store, rule: Rule, most: int = ROWS) -> Backtest:
    """Evaluate a rule over the transactions of the latest days, as :func:`fraudlake.detection.backtest.backtest` does.

    A rule of the kind ``model`` is evaluated over transactions with a prediction. Alerts that list entries suppress are
    only counted.

    Raises:
        UsageError: the rule does not fit the columns.
        FraudlakeError: the lake has no transactions.
    """
    from fraudlake.detection.report import Tally, report

    window = latest_days(store, most)
    history, frauds, (raised,) = _raised(store, [rule], window)
    with_entry = with_entries(raised, store, rule)
    alerts = with_entry.filter(with_entry["entry_id"].is_null())
    tally = Tally()
    tally.add(alerts)
    figures = report(rule, [tally.as_dict()], history, frauds)
    return Backtest(window, replace(figures, suppressed=len(with_entry) - len(alerts)))


def what_if(store: Store, old: Rule, new: Rule, most: int = ROWS) -> tuple[Window, WhatIf]:
    """Compare a changed rule with the present one over the transactions of the latest days, as :func:`backtest` does.

    Raises:
        UsageError: a rule does not fit the columns.
        FraudlakeError: the lake has no transactions.
    """
    from fraudlake.detection.alert_changes import compare, summarize

    window = latest_days(store, most)
    history, frauds, (before, after) = _raised(store, [old, new], window)
    changes = compare([with_entries(before, store, old)], [with_entries(after, store, new)], (old, new))
    return window, summarize(store, changes.rows, [changes.figures], (old, new), history, frauds)


def _raised(store: Store, rules: Sequence[Rule], window: Window) -> tuple[Range, int, list[pa.Table]]:
    """Evaluate rules of one kind and entity.

    Returns:
        The range of the evaluated transactions, the number that a verdict calls fraud, and the alerts of each rule,
        :data:`evidence.COLUMNS` and ``verdicts``.
    """
    from fraudlake.detection.report import Range, with_verdicts

    rows, raised = _evaluated(store, rules, window)
    decided = verdicts.latest(store, window)
    if rules[0].looks_at == "predictions":
        decided = {name: decided[name] for name in rows["transaction_id"].to_pylist() if name in decided}
    history = Range(len(rows), window.first, window.last, Counter(rows["label"].to_pylist())[True])
    return history, sum(decided.values()), [with_verdicts(alerts, decided) for alerts in raised]


def _evaluated(store: Store, rules: Sequence[Rule], window: Window) -> tuple[pa.Table, list[pa.Table]]:
    """Evaluate rules; return the evaluated transactions, and the alerts of each rule, :data:`evidence.COLUMNS`."""
    from fraudlake.detection import evidence, rule_entity
    from fraudlake.keyed.entity_key import THE_ACCOUNT
    from fraudlake.rules.columns import query_columns
    from fraudlake.rules.kinds.model import ModelRule
    from fraudlake_desk import scores

    of_scores = [rule for rule in rules if isinstance(rule, ModelRule)]
    if of_scores:
        rows = scores.scored(store, window)
        alerts = [scores.alerts(store, rule, rows) for rule in of_scores]
        return rows, [evidence.table(rows, raised, (), THE_ACCOUNT) for raised in alerts]
    columns = query_columns(store.settings.silver_columns)
    compiled = [rule.compile(columns, store.settings.entities) for rule in rules]
    by = rule_entity.find_entity_or_account(rules[0], compiled[0].partition_by, store.settings)
    read = [name for one in compiled for name in one.columns]
    rows = transactions(store, window, [*dict.fromkeys((*evidence.needs(store.settings), *read))])
    for column in () if by.is_account else by.columns:  # rows without a key are not evaluated
        rows = rows.filter(rows[column].is_valid())
    return rows, [evidence.table(rows, [*one.evaluate(rows).alerts], one.columns, by) for one in compiled]


def latest_days(store: Store, most: int) -> Window:
    """Return the latest days that have at most ``most`` transactions in total, and at least one day.

    Days in the future, possible if quality rules only warn of them, count only if there are no others.

    Raises:
        FraudlakeError: there are no transactions.
    """
    counts = store.count_by_day(tables.SILVER_TRANSACTIONS)
    latest = sorted(counts, reverse=True)
    today = datetime.now(UTC).date()
    days: list[date] = []
    total = 0
    for day in [day for day in latest if day <= today] or latest:
        total += counts[day]
        if days and total > most:
            break
        days.append(day)
    if not days:
        raise FraudlakeError("there are no transactions yet: run 'fraudlake run'")
    return Window(days[-1], days[0])


def transactions(store: Store, window: Window, columns: Sequence[str]) -> pa.Table:
    """Return columns of ``silver_transactions`` of a range."""
    silver = tables.SILVER_TRANSACTIONS
    return store.query(f"SELECT {sql_text.names(columns)} FROM {silver.name} WHERE {window.sql}", silver)


def definition(version: RuleVersion) -> dict[str, Any]:
    """Return the fields that define a rule, without its name and kind, as a person would write them."""
    rule = version.rule
    fields = rule.model_dump(mode="json", exclude={"name", "kind"}, exclude_none=True, exclude_defaults=True)
    spans = {name: durations.text(span) for name in fields if isinstance(span := getattr(rule, name), timedelta)}
    return fields | spans
