"""Alert changes: compares the alerts of a rule with those of a changed rule, without Spark."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from heapq import nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.detection import evidence
from fraudlake.detection.report import Range, Report, Tally, report
from fraudlake.gold import cases
from fraudlake.text.sql_text import literal, value

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.rules.kinds import Rule

EXAMPLES = 10
"""Most examples of alerts that appear, and of those that go."""
APPEAR = "appear"
GONE = "gone"
STAY = "stay"
_SIDES = ("before", "after", APPEAR, GONE)
_NO_EXAMPLES: dict[str, list[Any]] = {APPEAR: [], GONE: []}
ROWS = pa.schema(
    [
        ("change", pa.string()),
        ("alert_id", pa.string()),
        ("entity", pa.string()),
        ("entity_key", pa.string()),
        ("account_id", pa.string()),
        ("transaction_id", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("is_fraud", pa.bool_()),
    ]
)


class Example(NamedTuple):
    """An alert that appears or goes: how far its value is from the new limit, as a share of it, and its story.

    The distance is None if the rule has no limit that is a number.
    """

    distance: float | None
    time: int
    story: str


class Changes(NamedTuple):
    """The differences between the alerts of two rules, of all keys or of some.

    An alert stays if its last transaction has one before and after, even if its evidence or measures are others.

    ``rows`` has the alerts of the keys with a difference: ``change`` (:data:`APPEAR`, :data:`GONE` or :data:`STAY`),
    ``alert_id`` as in ``silver_alerts``, ``entity, entity_key, account_id, transaction_id``, the ``timestamp`` (UTC)
    and ``amount`` of the last transaction, and ``is_fraud`` by the latest verdicts, which is null without one.
    ``figures`` has the figures of all alerts as JSON values.
    """

    rows: pa.Table
    figures: dict[str, Any]


@dataclass(frozen=True)
class CaseChanges:
    """The ids of the cases that appear, that are gone, and whose alerts change, and the cases that open on each day.

    A case with some alerts of before is the same case, even if an earlier alert gives it another id.
    """

    appear: list[str]
    gone: list[str]
    changed: list[str]
    per_day: dict[str, tuple[int, int]]
    """By day (UTC) the number of cases of all rules, before and after."""

    @property
    def load(self) -> tuple[float, float]:
        """The mean number of cases a day, before and after."""
        days = [*self.per_day.values()] or [(0, 0)]
        before, after = (sum(day[side] for day in days) / len(days) for side in (0, 1))
        return before, after


@dataclass(frozen=True)
class WhatIf:
    """What a changed rule would do: the figures of its alerts before and after, and of those that appear and go."""

    before: Report
    after: Report
    appear: Report
    gone: Report
    stay: int
    examples: dict[str, list[Example]]
    """By :data:`APPEAR` and :data:`GONE` the alerts that are closest to the limit."""
    accounts: dict[str, list[str]]
    """The accounts that have alerts only after the change (:data:`APPEAR`), or only before it (:data:`GONE`)."""
    cases: CaseChanges
    rows: pa.Table
    """The alerts that appear and go, in the columns of :class:`Changes`."""

    def as_dict(self) -> dict[str, Any]:
        """Everything but the rows, for ``--json``."""
        reports = {name: getattr(self, name).as_dict() for name in _SIDES}
        examples = {
            side: [{"distance": one.distance, "story": one.story} for one in few] for side, few in self.examples.items()
        }
        others = {"stay": self.stay, "examples": examples, "accounts": self.accounts, "cases": asdict(self.cases)}
        return reports | others


def compare(
    before: Iterable[pa.Table],
    after: Iterable[pa.Table],
    rules: tuple[Rule | None, Rule],
    begin: datetime | None = None,
) -> Changes:
    """Compare the alerts of two rules.

    Args:
        before: alerts of the present rule, :data:`evidence.COLUMNS` and perhaps ``verdicts``, in parts; those with an
            ``entry_id`` are suppressed.
        after: alerts of the changed rule.
        rules: the present rule, if there is one, and the changed one.
        begin: alerts of earlier transactions do not count.
    """
    parts = [[part for part in side if len(part)] for side in (before, after)]
    nothing = next((part.slice(0, 0) for side in parts for part in side), None)
    if nothing is None:
        no_alerts = dict.fromkeys(_SIDES, Tally().as_dict())
        return Changes(ROWS.empty_table(), {**no_alerts, "suppressed": [0, 0], "stay": 0, "examples": _NO_EXAMPLES})
    raised = [_since(pa.concat_tables([nothing, *side]), begin) for side in parts]
    old, new = (_left(alerts) for alerts in raised)
    is_there = pc.is_in(new["transaction_id"], old["transaction_id"])
    stays = new.filter(is_there)
    changed = {
        APPEAR: new.filter(pc.invert(is_there)),
        GONE: old.filter(pc.invert(pc.is_in(old["transaction_id"], new["transaction_id"]))),
    }
    figures: dict[str, Any] = {
        "suppressed": [len(raised[0]) - len(old), len(raised[1]) - len(new)],
        "stay": len(stays),
        "examples": {side: _closest(alerts, *rules) for side, alerts in changed.items()},
    }
    for side, alerts in zip(_SIDES, (old, new, *changed.values()), strict=True):
        tally = Tally(begin)
        tally.add(alerts)
        figures[side] = tally.as_dict()
    keys = pa.concat_tables([alerts.select(["entity_key"]) for alerts in changed.values()])["entity_key"]
    rows = [_rows(side, rules[1].name, alerts, keys) for side, alerts in {**changed, STAY: stays}.items()]
    return Changes(pa.concat_tables(rows), figures)


def _since(alerts: pa.Table, begin: datetime | None) -> pa.Table:
    """Return the alerts of transactions from a time on."""
    return alerts if begin is None else alerts.filter(pc.field("time") >= pa.scalar(begin, alerts["time"].type))


def _left(alerts: pa.Table) -> pa.Table:
    """Return the alerts that no entry suppresses."""
    return alerts.filter(alerts["entry_id"].is_null()) if "entry_id" in alerts.column_names else alerts


def _closest(alerts: pa.Table, old: Rule | None, new: Rule) -> list[Example]:
    """Return the alerts whose values are closest to the limits that changed, of equal ones the latest."""
    before = {} if old is None else old.limits
    moved = {name: limit for name, limit in new.limits.items() if before.get(name) != limit} or new.limits
    times = alerts["time"].cast(pa.int64()).to_pylist()
    values = alerts.select(["measures", "amounts"]).to_pylist()
    distances = [_distance(new.compared(json.loads(row["measures"]), row["amounts"]), moved) for row in values]
    order = nsmallest(EXAMPLES, range(len(alerts)), key=lambda at: _order(Example(distances[at], times[at], "")))
    shown = alerts.take(pa.array(order, pa.int64())).to_pylist()
    return [Example(distances[at], times[at], evidence.story(row)) for at, row in zip(order, shown, strict=True)]


def _distance(values: Mapping[str, float], limits: Mapping[str, float]) -> float | None:
    """Return how far the closest value is from its limit, as a share of the limit."""
    shares = (abs(values[name] - limit) / (abs(limit) or 1.0) for name, limit in limits.items() if name in values)
    return min(shares, default=None)


def _rows(side: str, name: str, alerts: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    """Return the alerts of some keys in the columns of :class:`Changes`."""
    chosen = alerts.filter(pc.is_in(alerts["entity_key"], keys))
    first = pc.list_element(chosen["transaction_ids"], 0).to_pylist()
    pairs = zip(first, chosen["transaction_id"].to_pylist(), strict=True)
    chosen = chosen.append_column("alert_id", pa.array((evidence.alert_id(name, *pair) for pair in pairs), pa.string()))
    chosen = chosen.append_column("change", pa.repeat(side, len(chosen)))
    decided = chosen["verdicts"].to_pylist() if "verdicts" in chosen.column_names else [[]] * len(chosen)
    is_fraud = [any(labels) if (labels := [one for one in of if one is not None]) else None for of in decided]
    chosen = chosen.append_column("timestamp", chosen["time"]).append_column("is_fraud", pa.array(is_fraud, pa.bool_()))
    return chosen.select(ROWS.names).cast(ROWS)


def summarize(
    store: Store,
    rows: pa.Table,
    figures: Sequence[Mapping[str, Any]],
    rules: tuple[Rule | None, Rule],
    history: Range,
    frauds: int,
) -> WhatIf:
    """Add up the differences, and say what they do to cases and accounts.

    Args:
        store: the lake's tables.
        rows: the rows of :class:`Changes`, of all parts.
        figures: the figures of :class:`Changes`, of each part.
        rules: the present rule, if there is one, and the changed one.
        history: the transactions of the range.
        frauds: number of transactions in the range that a verdict calls fraud.
    """
    rule = rules[1]
    reports = {side: report(rule, [part[side] for part in figures], history, frauds) for side in _SIDES}
    for at, side in enumerate(_SIDES[:2]):
        suppressed = sum(part["suppressed"][at] for part in figures)
        reports[side] = replace(reports[side], suppressed=suppressed)
    closest = {
        side: nsmallest(EXAMPLES, (Example(*one) for part in figures for one in part["examples"][side]), _order)
        for side in (APPEAR, GONE)
    }
    return WhatIf(
        **reports,
        stay=sum(part["stay"] for part in figures),
        examples=closest,
        accounts=_accounts(rows),
        cases=_cases(store, rule.name, rows, history),
        rows=rows.filter(pc.not_equal(rows["change"], STAY)),
    )


def _order(example: Example) -> tuple[float, int, str]:
    return math.inf if example.distance is None else example.distance, -example.time, example.story


def _accounts(rows: pa.Table) -> dict[str, list[str]]:
    # An account that is not a key may have alerts of keys without a difference: then it has alerts before and after.
    sides = zip(rows["change"].to_pylist(), rows["account_id"].to_pylist(), strict=True)
    by_side: dict[str, set[str]] = {APPEAR: set(), GONE: set(), STAY: set()}
    for side, account in sides:
        by_side[side].add(account)
    before = by_side[STAY] | by_side[GONE]
    after = by_side[STAY] | by_side[APPEAR]
    return {APPEAR: sorted(after - before), GONE: sorted(before - after)}


def _cases(store: Store, name: str, rows: pa.Table, history: Range) -> CaseChanges:
    """Compute the cases of the keys with a difference, before and after, together with the alerts of other rules."""
    per_day: dict[str, tuple[int, int]] = {}
    if history.first is None or history.last is None:
        return CaseChanges([], [], [], per_day)
    settings = store.settings
    begin = datetime.combine(history.first, time(), UTC)
    end = datetime.combine(history.last, time(), UTC) + timedelta(days=1)
    others = _other_alerts(store, name, rows, begin, end)
    own = rows.append_column("rule", pa.repeat(name, len(rows))).append_column("detected_at", rows["timestamp"])
    own = own.select([*others.column_names, "change"])
    sides = []
    for left_out in (APPEAR, GONE):
        chosen = own.filter(pc.not_equal(own["change"], left_out)).drop_columns("change")
        sides.append(cases.cases(pa.concat_tables([others, chosen]), settings.case_gap, settings.case_length))
    before, after = (_alerts_of(of) for of in sides)
    opened = [Counter(of["date"].to_pylist()) for of in sides]
    for day, count in _opened_by_others(store, rows, history.first, history.last).items():
        per_day[day.isoformat()] = (count + opened[0][day], count + opened[1][day])
    alerts_before, alerts_after = (set(chain.from_iterable(of.values())) for of in (before, after))
    stays = {case for case, alerts in after.items() if alerts & alerts_before}
    return CaseChanges(
        sorted(after.keys() - stays),
        sorted(case for case, alerts in before.items() if not alerts & alerts_after),
        sorted(case for case in stays if before.get(case) != after[case]),
        per_day,
    )


def _alerts_of(of: pa.Table) -> dict[str, frozenset[str]]:
    return {row["case_id"]: frozenset(row["alert_ids"]) for row in of.select(["case_id", "alert_ids"]).to_pylist()}


def _other_alerts(store: Store, name: str, rows: pa.Table, begin: datetime, end: datetime) -> pa.Table:
    """Return alerts that are the same before and after: of other rules, and of this rule outside of the range.

    They are those with the keys of the rows, and around the range as far as a case may reach.
    """
    length = store.settings.case_length
    inside = _between(begin, end)
    entity = rows["entity"][0].as_py() if len(rows) else ""
    of_keys = store.query(
        f"SELECT {cases.COLUMNS} FROM {tables.SILVER_ALERTS.name} WHERE entity = {literal(entity)} "
        f"AND {_between(begin - length, end + length)} AND NOT (rule = {literal(name)} AND {inside})",
        tables.SILVER_ALERTS,
    )
    return of_keys.filter(pc.is_in(of_keys["entity_key"], rows["entity_key"]))


def _between(begin: datetime, end: datetime) -> str:
    return f"timestamp >= {value(begin)} AND timestamp < {value(end)}"


def _opened_by_others(store: Store, rows: pa.Table, first: date, last: date) -> dict[date, int]:
    """Return how many cases of keys without a difference ``gold_cases`` has, by the day on which they opened.

    All days with transactions are there, as all cases that a range changes open on one of them.
    """
    present = store.query(
        f"SELECT date, entity, entity_key FROM {tables.GOLD_CASES.name} "
        f"WHERE date >= DATE '{first}' AND date <= DATE '{last}'",
        tables.GOLD_CASES,
    )
    is_touched = pc.is_in(present["entity_key"], rows["entity_key"])
    if len(rows):
        is_touched = pc.and_(is_touched, pc.equal(present["entity"], rows["entity"][0]))
    counts = Counter(present.filter(pc.invert(is_touched))["date"].to_pylist())
    # One payment that is dated decades ago makes no days without cases.
    days = store.query(
        f"SELECT DISTINCT date FROM {tables.SILVER_TRANSACTIONS.name} "
        f"WHERE date >= DATE '{first}' AND date <= DATE '{last}'",
        tables.SILVER_TRANSACTIONS,
    )["date"].to_pylist()
    return {day: counts[day] for day in sorted({*days, *counts})}
