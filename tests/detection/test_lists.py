"""Lists that rules name: allowed keys raise no alert, and rules that watch alert on nothing else, by a plain loop."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from fraudlake import tables
from fraudlake.detection import backtest, list_entries, rule_table, what_if
from fraudlake.detection.list_entries import Entry
from fraudlake.errors import UsageError
from fraudlake.operations.status import status
from fraudlake.rules import relations
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.settings import Settings
from fraudlake_desk import rules as desk_rules
from tests.detection.test_entities import COLUMNS, ENTITIES, Paid, expected, history
from tests.detection.test_entity_streams import (
    BUSY,
    PAIR,
    PROBE,
    TRIPLE,
    Alerts,
    detected,
    end_of,
    numbered,
    raised,
)
from tests.detection.test_suppressed_streams import MINUTE, parts_of, write
from tests.transactions import time_of

LISTED = (
    {**PAIR, "allowed": {"quiet": "terminal", "vips": "account"}},
    {**BUSY, "allowed": {"quiet": "terminal_id"}, "watched": {"zones": "zone", "mules": "account"}},
    {**TRIPLE, "watched": {"places": "terminal_id"}},
    {**PROBE, "allowed": {"vips": "account"}},
)
KEYS = {
    ("quiet", "terminal"): ["17", "18", "19"],
    ("quiet", "terminal_id"): ["17", "18", "19"],
    ("vips", "account"): ["0", "1", "2"],
    ("zones", "zone"): ["1", "2"],
    ("mules", "account"): ["0", "1", "2"],
    ("places", "terminal_id"): ["17", "18", "19"],
}


class Divided(NamedTuple):
    """The alerts that lists leave, and those that they suppress."""

    left: Alerts
    suppressed: Alerts


def key_of(paid: Paid, of: str) -> str | None:
    value = {"account": paid.row.account_id, "zone": paid.zone}.get(of, paid.terminal_id)
    return None if value is None else str(value)


def divided(rows: list[Paid], fields: dict[str, Any], entries: Iterable[Entry]) -> Divided:
    """Look at each alert's last transaction, and at each entry, one after the other."""
    result = Divided([], [])

    def is_on(paid: Paid, lists: dict[str, str]) -> bool:
        return any(
            (one.list, one.entity, one.entity_key) == (name, of, key_of(paid, of))
            and one.starts_at <= time_of(paid.row) < one.ends_at
            for name, of in lists.items()
            for one in entries
        )

    for alert in expected(fields, rows):
        last = rows[alert[2][-1]]
        if fields.get("watched") and not is_on(last, fields["watched"]):
            continue
        (result.suppressed if is_on(last, fields.get("allowed", {})) else result.left).append(alert)
    return Divided(sorted(result.left), sorted(result.suppressed))


def rule(fields: dict[str, Any]) -> Rule:
    return RULE.validate_python(fields)


@pytest.mark.stream
@pytest.mark.parametrize("ordering", ["arrival", pytest.param("event_time", marks=pytest.mark.long)])
def test_lists_that_change_between_micro_batches_have_the_effect_of_a_plain_loop(lake: Any, ordering: str) -> None:
    opened = lake(
        rules=LISTED[:3],
        columns=COLUMNS,
        entities=ENTITIES,
        ordering=ordering,
        max_out_of_orderness="1 minute",
        buckets=2,
    )
    rows, draw = numbered(history(7, 900)), random.Random(3)
    parts = parts_of(rows, draw, 4, ordering)
    rule_table.apply(opened, [*((rule(one), "live") for one in LISTED[:3]), (rule(LISTED[3]), "shadow")], "test", None)
    added: list[Entry] = []
    for number, part in enumerate(parts):
        detected(opened, part)
        newest = max(time_of(paid.row) for paid in part)
        start = list_entries.first_minute(newest - 2 * MINUTE, newest)
        for one in [one for one in added if draw.random() < 0.3]:
            write(opened, one.ended(start, "back", "bob", start))
            added.remove(one)
        for (name, of), keys in KEYS.items():
            ends_at = start + draw.randrange(30, 600) * MINUTE
            entry = Entry(
                f"{number}-{name}-{of}", name, None, of, draw.choice(keys), None, start, ends_at, "w", "ann", start
            )
            added.append(entry)
            proposed = {**entry.added, "entry_id": "p", "event": "proposed", "entity_key": draw.choice(keys)}
            write(opened, entry.added, proposed)
    if ordering == "event_time":
        detected(opened, [end_of(rows, 9)])

    entries = list_entries.read(opened.store)
    wanted = {fields["name"]: divided(rows, fields, entries) for fields in LISTED}
    assert raised(opened) == sorted(alert for name in ("pair", "busy", "triple") for alert in wanted[name].left)
    assert raised(opened, tables.SILVER_SHADOW_ALERTS) == wanted["probe"].left
    suppressed = sorted(alert for of_rule in wanted.values() for alert in of_rule.suppressed)
    assert raised(opened, tables.SILVER_SUPPRESSED_ALERTS) == suppressed
    assert min(len(wanted[name].left) for name in ("pair", "busy", "triple")) > 3
    assert len(suppressed) > 20
    assert sum(status(opened).alerts.suppressed.values()) == len(suppressed)
    if ordering == "event_time":
        for fields in LISTED[:3]:
            assert_history_agrees(opened, fields, wanted[fields["name"]])


def assert_history_agrees(opened: Any, fields: dict[str, Any], wanted: Divided) -> None:
    """A backtest, with Spark and at the desk, and a what-if say what the stream did."""
    report, alerts = backtest.backtest(opened, rule(fields), None, None)
    tried = sorted((row["entity_key"], row["transaction_id"]) for row in alerts.toArrow().to_pylist())
    assert [int(id_.rpartition("-")[2]) for _, id_ in tried] == [last for _, last in sorted_lasts(wanted.left)]
    assert (report.alerts, report.suppressed) == (len(wanted.left), len(wanted.suppressed))
    at_desk = desk_rules.backtest(opened.store, rule(fields)).report
    assert (at_desk.alerts, at_desk.suppressed) == (report.alerts, report.suppressed)
    bare = {name: given for name, given in fields.items() if name not in ("allowed", "watched")}
    compared = what_if.what_if(opened, rule(bare), rule(fields))
    assert (compared.after.alerts, compared.after.suppressed) == (report.alerts, report.suppressed)
    assert compared.before.suppressed == 0
    assert compared.gone.alerts == compared.before.alerts - compared.stay > 0


def sorted_lasts(alerts: Alerts) -> list[tuple[str, int]]:
    return sorted(((key, positions[-1]) for _, key, positions in alerts), key=lambda one: (one[0], f"tx-{one[1]}"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**BUSY, "allowed": {"a": "device"}}, "busy: a: a list cannot be of 'device'"),
        ({**BUSY, "allowed": {"a": "amount"}}, "busy: a: a list cannot be of 'amount'"),
        ({**TRIPLE, "watched": {"a": "place"}}, "triple: a: a list of place, whose key has 2 columns, is for rules by"),
        ({**PAIR, "allowed": {"a": "zone"}}, "pair: rules of the kind small_then_large keep no zone"),
        ({"kind": "model", "name": "m", "threshold": 0.5, "allowed": {"a": "zone"}}, "m: a: rules of the kind model"),
    ],
)
def test_a_list_whose_key_a_rule_does_not_have_is_refused(fields: dict[str, Any], message: str) -> None:
    settings = Settings(columns=COLUMNS, entities=ENTITIES)
    with pytest.raises(UsageError, match=message):
        rule(fields).check(query_columns(settings.columns), settings.entities)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"allowed": {"a": "account"}, "watched": {"a": "account"}}, "the list a is both allowed and watched"),
        ({"allowed": {"suppressed": "account"}}, "no list may be called suppressed"),
        ({"watched": {"A list": "account"}}, "should match pattern"),
    ],
)
def test_names_of_lists_are_checked(lists: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        rule({**BUSY, **lists})


def test_a_rule_without_lists_is_written_as_before() -> None:
    assert {"allowed", "watched"}.isdisjoint(rule(BUSY).model_dump())


@pytest.mark.parametrize(
    ("inner", "outer", "is_contained"),
    [
        ({}, {}, True),
        ({"allowed": {"a": "account"}}, {}, True),
        ({}, {"allowed": {"a": "account"}}, False),
        ({"allowed": {"a": "account", "b": "account"}}, {"allowed": {"a": "account"}}, True),
        ({"allowed": {"a": "account"}}, {"allowed": {"a": "zone"}}, False),
        ({"watched": {"a": "account"}}, {}, True),
        ({}, {"watched": {"a": "account"}}, False),
        ({"watched": {"a": "account"}}, {"watched": {"a": "account", "b": "account"}}, True),
        ({"watched": {"a": "account", "b": "account"}}, {"watched": {"a": "account"}}, False),
    ],
)
def test_a_rule_is_contained_only_if_the_lists_of_the_other_take_nothing_away(
    inner: dict[str, Any], outer: dict[str, Any], is_contained: bool
) -> None:
    fields = {"kind": "threshold", "aggregate": "count", "window": "1 h"}
    rules = [
        rule({**fields, "name": "inner", "above": 5, **inner}),
        rule({**fields, "name": "outer", "above": 3, **outer}),
    ]
    found = relations.find(rules, query_columns({}))
    assert [(one.rule, one.other) for one in found if one.kind == "contained"] == [("inner", "outer")] * is_contained
