"""Cases are a function of the alerts: equal however these came, and equal to what a plain program makes of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fraudlake import tables
from fraudlake.gold import cases
from fraudlake.lake import Lake
from fraudlake.streams import aggregate, stream
from fraudlake.streams import cases as streamed

MIDNIGHT = datetime(2026, 3, 7, tzinfo=UTC)
GAP, LENGTH = timedelta(hours=24), timedelta(hours=96)


class Alert(NamedTuple):
    id: str
    hour: int
    account: str = "1"
    entity: str = "account"
    key: str = "1"
    rule: str = "r"
    transaction: str = ""
    amount: float = 10.0

    def row(self) -> dict[str, Any]:
        at = MIDNIGHT + timedelta(hours=self.hour)
        return {
            "alert_id": self.id,
            "rule": self.rule,
            "account_id": self.account,
            "transaction_id": self.transaction or f"t{self.id}",
            "timestamp": at,
            "amount": self.amount,
            "detected_at": at + timedelta(minutes=1),
            "entity": self.entity,
            "entity_key": self.key,
        }


def arrow(alerts: Iterable[Alert]) -> pa.Table:
    """Alerts as the query of COLUMNS gives them."""
    schema = pa.schema([field for field in tables.SILVER_ALERTS.schema if field.name in Alert("", 0).row()])
    return pa.Table.from_pylist([alert.row() for alert in alerts], schema)


def oracle(alerts: Iterable[Alert]) -> list[dict[str, Any]]:
    """The cases, one alert after the other."""
    made: list[list[Alert]] = []

    def entity(alert: Alert) -> tuple[str, str]:
        return alert.entity, alert.key

    for alert in sorted(alerts, key=lambda alert: (entity(alert), alert.hour, alert.id)):
        case = made[-1] if made and entity(made[-1][0]) == entity(alert) else None
        if case and alert.hour - case[-1].hour <= 24 and alert.hour - case[0].hour <= 96:
            case.append(alert)
        else:
            made.append([alert])
    rows = []
    for case in made:
        paid = {alert.row()["transaction_id"]: alert for alert in case}
        opened = case[0].row()["timestamp"]
        rows.append(
            {
                "case_id": case[0].id,
                "entity": entity(case[0])[0],
                "entity_key": entity(case[0])[1],
                "account_id": case[0].account,
                "opened_at": opened,
                "last_alert_at": case[-1].row()["timestamp"],
                "alerts": len(case),
                "rules": sorted({alert.rule for alert in case}),
                "alert_ids": [alert.id for alert in case],
                "transaction_ids": [*paid],
                "accounts": len({alert.account for alert in paid.values()}),
                "amount_at_risk": sum(alert.amount for alert in paid.values()),
                "detected_at": opened + timedelta(minutes=1),
                "date": opened.date(),
            }
        )
    return rows


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["case_id"]))


def expected(alerts: Iterable[Alert]) -> list[dict[str, Any]]:
    return sorted(oracle(alerts), key=lambda row: str(row["case_id"]))


def drawn(seed: int, number: int, keys: int = 4) -> list[Alert]:
    draw = random.Random(seed)
    alerts = []
    for n in range(number):
        account = str(draw.randrange(keys))
        entity, key = draw.choice([("account", account), ("terminal", f"t{draw.randrange(keys)}")])
        # A transaction may complete an alert of several rules.
        transaction, hour = f"{account}-{draw.randrange(20)}", draw.randrange(400)
        amount = float(draw.randrange(1, 1000))
        alerts.append(
            Alert(f"a{n:05}", hour, account, entity, key, f"r{draw.randrange(3)}", f"{transaction}-{hour}", amount)
        )
    paid = {alert.transaction: alert.amount for alert in alerts}
    return [alert._replace(amount=paid[alert.transaction]) for alert in alerts]


def test_alerts_at_most_a_gap_apart_are_a_case_and_the_earliest_names_it() -> None:
    found = cases.cases(arrow([Alert("c", 48), Alert("b", 24), Alert("a", 73), Alert("z", 0, key="2")]), GAP, LENGTH)

    assert [(row["case_id"], row["alert_ids"]) for row in by_id(found)] == [
        ("a", ["a"]),
        ("b", ["b", "c"]),
        ("z", ["z"]),
    ]


def test_an_entity_with_an_alert_each_day_gets_a_case_for_each_length() -> None:
    daily = [Alert(f"a{day:02}", 24 * day) for day in range(12)]

    found = by_id(cases.cases(arrow([*daily, Alert("b", 97, key="2")]), GAP, LENGTH))

    assert [(row["case_id"], row["alerts"]) for row in found] == [("a00", 5), ("a05", 5), ("a10", 2), ("b", 1)]
    assert [(row["last_alert_at"] - row["opened_at"]) <= LENGTH for row in found] == [True] * 4


def test_a_length_below_the_gap_cuts_cases_too() -> None:
    alerts = [Alert("a", 0), Alert("b", 2), Alert("c", 3), Alert("d", 4)]

    found = cases.cases(arrow(alerts), GAP, timedelta(hours=2))

    assert [row["alert_ids"] for row in by_id(found)] == [["a", "b"], ["c", "d"]]


def test_a_transaction_that_completes_two_alerts_counts_once() -> None:
    alerts = [Alert("a", 0, transaction="t", rule="y"), Alert("b", 0, transaction="t", rule="x"), Alert("c", 1)]

    (case,) = cases.cases(arrow(alerts), GAP, LENGTH).to_pylist()

    assert (case["alerts"], case["rules"], case["transaction_ids"]) == (3, ["r", "x", "y"], ["t", "tc"])
    assert case["amount_at_risk"] == 20.0


def test_amounts_at_the_edge_of_what_a_double_holds_leave_a_finite_amount_at_risk() -> None:
    alerts = [Alert("a", 0, amount=1.7e308), Alert("b", 1, amount=1.7e308), Alert("c", 2, amount=5.0)]
    refunds = [alert._replace(id=f"r{alert.id}", key="2", amount=-alert.amount) for alert in alerts]

    found = cases.cases(arrow([*alerts, *refunds]), GAP, LENGTH)

    assert [case["amount_at_risk"] for case in by_id(found)] == [2e12 + 5, -2e12 - 5]


@pytest.mark.parametrize("seed", range(10))
def test_cases_equal_those_of_a_plain_program(seed: int) -> None:
    alerts = drawn(seed, 150)

    assert by_id(cases.cases(arrow(alerts), GAP, LENGTH)) == expected(alerts)


def follow(
    table: dict[str, dict[str, Any]], there: list[Alert], new: list[Alert], first_day: date | None = None
) -> None:
    """What the stream does with a micro-batch of alerts that are there: compute the entities again, and merge."""
    touched = {(row["entity"], row["entity_key"]) for row in arrow(new).to_pylist()}

    def is_of(row: dict[str, Any]) -> bool:
        return (row["entity"], row["entity_key"]) in touched

    present = pa.Table.from_pylist([row for row in table.values() if is_of(row)], tables.GOLD_CASES.schema)
    alerts = arrow(there)
    alerts = alerts.filter(pa.array([is_of(row) for row in alerts.to_pylist()], pa.bool_()))
    for row in cases.changes(present, alerts, GAP, LENGTH, first_day).to_pylist():
        gone = row.pop("gone")
        table.pop(row["case_id"], None)
        if not gone:
            table[row["case_id"]] = row


@given(st.integers(0, 10_000), st.lists(st.integers(1, 60), max_size=8))
@settings(max_examples=25)
def test_cases_are_equal_however_alerts_are_cut_into_micro_batches(seed: int, cuts: list[int]) -> None:
    alerts = drawn(seed, 60, keys=2)  # in no order, so that later ones join cases
    table: dict[str, dict[str, Any]] = {}
    ends = [0, *sorted(cuts), len(alerts)]

    for begin, end in itertools.pairwise(ends):
        follow(table, alerts[:end], alerts[begin:end])
        follow(table, alerts[:end], alerts[begin:end])  # repeated after a crash

    assert sorted(table.values(), key=lambda row: str(row["case_id"])) == expected(alerts)


def test_a_late_alert_joins_two_cases_and_nothing_else_changes() -> None:
    table: dict[str, dict[str, Any]] = {}
    there = [Alert("a", 0), Alert("c", 40), Alert("x", 0, key="2")]
    follow(table, there, there)
    assert sorted(table) == ["a", "c", "x"]

    present = pa.Table.from_pylist([table["a"], table["c"]], tables.GOLD_CASES.schema)
    changes = cases.changes(present, arrow([*there[:2], Alert("b", 20)]), GAP, LENGTH).to_pylist()

    assert [(row["case_id"], row["alert_ids"], row["gone"]) for row in changes] == [
        ("a", ["a", "b", "c"], False),
        ("c", ["c"], True),
    ]


def test_a_late_alert_that_moves_where_cases_begin_leaves_each_alert_in_one_case() -> None:
    table: dict[str, dict[str, Any]] = {}
    daily = [Alert(f"a{day:02}", 24 * day) for day in range(1, 12)]
    follow(table, daily, daily)
    assert sorted(table) == ["a01", "a06", "a11"]
    late = Alert("late", 12)

    follow(table, [*daily, late], [late])

    assert {name: row["alert_ids"] for name, row in table.items()} == {
        "late": ["late", "a01", "a02", "a03", "a04"],
        "a05": ["a05", "a06", "a07", "a08", "a09"],
        "a10": ["a10", "a11"],
    }


def test_a_case_whose_alerts_have_left_silver_stays_as_it_is() -> None:
    table: dict[str, dict[str, Any]] = {}
    alerts = [Alert("a", 0), Alert("b", 20), Alert("c", 26), Alert("d", 30)]
    follow(table, alerts[:3], alerts[:3])
    before = dict(table)

    follow(table, alerts[2:], alerts[3:], first_day=date(2026, 3, 8))  # those of 7 March are gone

    assert table["a"] == before["a"]
    assert table["d"]["alert_ids"] == ["d"]


def test_ten_thousand_cases_are_computed_at_once() -> None:
    alerts = [Alert(f"a{n}", n % 7, key=str(n % 10_000)) for n in range(30_000)]

    found = cases.cases(arrow(alerts), GAP, LENGTH)

    assert len(found) == 10_000
    assert set(found["alerts"].to_pylist()) == {3}


def put(lake: Lake, alerts: list[Alert]) -> None:
    lake.writer(tables.SILVER_ALERTS).write(
        pa.Table.from_pylist([a.row() for a in alerts], tables.SILVER_ALERTS.schema), "append"
    )


@pytest.mark.stream
def test_the_stream_of_aggregates_keeps_cases_as_alerts_come_in_any_order(lake: Callable[..., Lake]) -> None:
    opened, alerts = lake(case_length=LENGTH), drawn(7, 90)

    def take(new: list[Alert], **settings: Any) -> list[dict[str, Any]]:
        put(opened, new)
        here = lake(**{"case_length": LENGTH, **settings})
        stream.run(here, aggregate.streams(here), "available-now")
        return by_id(here.store.rows(tables.GOLD_CASES))

    assert take(alerts[:40]) == expected(alerts[:40])
    assert take(alerts[40:]) == expected(alerts)
    version = opened.store.version(tables.GOLD_CASES)
    streamed.update_all(opened)
    assert opened.store.version(tables.GOLD_CASES) == version  # what is the same is not written
    assert len(take([], case_length=timedelta(days=2))) > len(expected(alerts))
    longer = take([], case_gap=timedelta(days=30), case_length=timedelta(days=30))
    assert len(longer) == len({(a.entity or "account", a.key or a.account) for a in alerts})
