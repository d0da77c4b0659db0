"""What each live rule found that the others did not: drawn lakes against a count in plain Python, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import fraudlake
from fraudlake import api, tables
from fraudlake.detection import rule_table, rule_value
from fraudlake.detection.rule_value import Findings, RuleValue, RuleValues
from fraudlake.lake.local_store import LocalStore
from fraudlake.review.window import Window
from fraudlake.rules.kinds.small_then_large import SmallThenLargeRule
from fraudlake.rules.rule_set import RuleVersion
from fraudlake.settings import load
from fraudlake_desk.queue import precision
from tests import plain_lake
from tests.conftest import FraudlakeHere
from tests.desk import local
from tests.desk.local import open_store

Told = Callable[..., list[str]]
MARCH_1 = datetime(2026, 3, 1, tzinfo=UTC)
FIRST, LAST = date(2026, 3, 4), date(2026, 3, 9)
ENTITIES = {"wide": "account", "within": "account", "twin": "account", "apart": "account", "crowded": "terminal",
            "former": "account"}  # fmt: skip
"""The rules by the entity that they are by; all but the last one are live, in version 2."""
NAMES = ("twin", "crowded", "wide", "silent", "apart", "within")
"""The live rules, in their order; one has no alerts."""


def version(name: str, number: int = 2) -> RuleVersion:
    return RuleVersion(SmallThenLargeRule(name=name, small_below=1, large_above=500, within="60 s"), number, "live")


class Lake(NamedTuple):
    """The rows of a drawn lake."""

    payments: list[dict[str, Any]]
    alerts: list[dict[str, Any]]
    verdicts: list[dict[str, Any]]


def draw(seed: int) -> Lake:
    """Draw payments of twelve days, alerts of rules that overlap wholly, partly and never, and verdicts."""
    random = Random(seed)
    payments = []
    for number in range(150):
        at = MARCH_1 + timedelta(minutes=random.randrange(12 * 24 * 60))
        payments.append(
            {
                "transaction_id": f"p{number}",
                "account_id": f"a{random.randrange(12)}",
                "terminal": f"t{random.randrange(20)}",
                "timestamp": at,
                "date": at.date(),
                "amount": None if random.random() < 0.1 else random.randrange(4000) / 4,
                "label": random.choice([True, False, None]),
            }
        )
    by_account = [one for one in payments if one["account_id"] < "a4"]
    apart = [one for one in payments if one["account_id"] in ("a8", "a9")]
    wide = random.sample(by_account, len(by_account) // 2)
    raised = {
        "wide": wide,
        "twin": random.sample(payments, 20),
        "within": random.sample(wide, len(wide) // 2),
        "apart": random.sample(apart, len(apart) // 2),
        "crowded": random.sample(payments, 15),
        "former": random.sample(payments, 30),
    }
    alerts = [alert(name, 2, last, payments, random) for name, of in raised.items() for last in of]
    alerts += [alert("wide", 1, last, payments, random) for last in random.sample(payments, 20)]
    return Lake(payments, alerts, verdicts(random, payments))


def alert(
    rule: str, number: int, last: Mapping[str, Any], payments: Iterable[Mapping[str, Any]], random: Random
) -> dict[str, Any]:
    """An alert that ends with a payment, with earlier ones of its key as evidence; some have no evidence."""
    column = {"account": "account_id", "terminal": "terminal"}[ENTITIES[rule]]
    begin = last["timestamp"] - timedelta(days=2)
    earlier = [one for one in payments if one[column] == last[column] and begin < one["timestamp"] < last["timestamp"]]
    parts = [*random.sample(earlier, min(len(earlier), random.randrange(3))), last]
    names = ("transaction_id", "timestamp", "amount")
    evidence = [{"variable": "A", **{name: part[name] for name in names}} for part in parts]
    return {
        "alert_id": f"{rule} {number} {last['transaction_id']}",
        "rule": rule,
        "rule_version": number,
        "entity": ENTITIES[rule],
        "entity_key": last[column],
        "account_id": last["account_id"],
        "detected_at": last["timestamp"],
        "evidence": None if random.random() < 0.2 else evidence,
        **{name: last[name] for name in names},
    }


def verdicts(random: Random, payments: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Verdicts on two thirds of the payments, some of which are changed or withdrawn later."""
    given = []
    for one in payments:
        for hour in range(random.randrange(3)):
            verdict = random.choice([True, False, False, None])
            at = one["timestamp"] + timedelta(hours=hour)
            row = {"transaction_id": one["transaction_id"], "verdict": verdict, "decided_at": at, "date": one["date"]}
            given.append(row | {"analyst": "ann"})
    return given


def fill(store: LocalStore, lake: Lake, undecided: bool = False, unlabelled: bool = False) -> dict[str, str]:
    """Put a drawn lake into a store, with the cases of all alerts but those of one account.

    Returns:
        The case of each alert that has one.
    """
    payments = [one | ({"label": None} if unlabelled else {}) for one in lake.payments]
    local.append(store, tables.SILVER_TRANSACTIONS, payments)
    local.append(store, tables.SILVER_VERDICTS, [] if undecided else lake.verdicts)
    local.append(store, tables.SILVER_ALERTS, [one for one in lake.alerts if one["account_id"] != "a2"])
    local.make_cases(store)
    local.append(store, tables.SILVER_ALERTS, [one for one in lake.alerts if one["account_id"] == "a2"])
    rows = store.rows(tables.GOLD_CASES).to_pylist()
    return {name: row["case_id"] for row in rows for name in row["alert_ids"]}


def latest(lake: Lake) -> dict[str, bool]:
    by_time = sorted(lake.verdicts, key=lambda row: row["decided_at"])
    last = {row["transaction_id"]: row["verdict"] for row in by_time}
    return {name: verdict for name, verdict in last.items() if verdict is not None}


def labels(lake: Lake) -> dict[str, bool]:
    return {one["transaction_id"]: one["label"] for one in lake.payments if one["label"] is not None}


def payments_of(one: Mapping[str, Any]) -> set[str]:
    return {one["transaction_id"], *(part["transaction_id"] for part in one["evidence"] or ())}


def expected(lake: Lake, case_of: Mapping[str, str], truth: Mapping[str, bool], truth_name: str | None) -> RuleValues:
    """Count as the docstring of :mod:`fraudlake.detection.rule_value` says, an alert at a time."""
    amounts = {one["transaction_id"]: one["amount"] or 0.0 for one in lake.payments}
    live = [one for one in lake.alerts if one["rule"] in NAMES and one["rule_version"] == 2]
    values = []
    without_case = 0
    for name in NAMES:
        own = [one for one in live if one["rule"] == name and FIRST <= one["timestamp"].date() <= LAST]
        others = [one for one in live if one["rule"] != name]
        without_case += sum(one["alert_id"] not in case_of for one in own)
        cases = {one["alert_id"]: case_of.get(one["alert_id"], one["transaction_id"]) for one in live}
        cases_of_others = {cases[one["alert_id"]] for one in others}
        payments_of_others = set().union(*map(payments_of, others))

        def is_alone(one: Mapping[str, Any], payment: str, cases_: Any = cases_of_others, of: Any = cases,
                     payments: Any = payments_of_others) -> bool:  # fmt: skip
            return of[one["alert_id"]] not in cases_ and payment not in payments

        found = {payment for one in own for payment in payments_of(one)}
        shared = {payment for one in own for payment in payments_of(one) if not is_alone(one, payment)}
        alone = [one for one in own if is_alone(one, one["transaction_id"])]
        every = findings(own, found, cases, truth, amounts)
        only = findings(alone, found - shared, cases, truth, amounts)
        completing = {one["transaction_id"] for one in own}
        completing -= {one["transaction_id"] for one in own if not is_alone(one, one["transaction_id"])}
        values.append(RuleValue(name, 2, every, Findings(**{**vars(only), "payments": len(completing)})))
    return RuleValues(truth_name, without_case, values)


def findings(
    alerts: list[dict[str, Any]],
    found: set[str],
    cases: Mapping[str, str],
    truth: Mapping[str, bool],
    amounts: Mapping[str, float],
) -> Findings:
    decided = [known for one in alerts if (known := [truth[name] for name in payments_of(one) if name in truth])]
    frauds = {name for name in found if truth.get(name)}
    return Findings(
        alerts=len(alerts),
        cases=len({cases[one["alert_id"]] for one in alerts}),
        payments=len({one["transaction_id"] for one in alerts}),
        decided=len(decided),
        false_alarms=sum(not any(known) for known in decided),
        frauds=len(frauds),
        amount=sum(amounts[name] for name in frauds),
    )


def live(store: LocalStore, *names: str) -> None:
    """Make rules live, in version 2, and retire their version 1."""
    versions = [replace(version(name, 1), status="retired") for name in names] + [version(name) for name in names]
    local.append(store, tables.SILVER_RULES, rule_table.rows_of(1, versions))


def measured(store: Any) -> RuleValues:
    return rule_value.measure(store, [version(name) for name in NAMES], FIRST, LAST)


@pytest.mark.parametrize("seed", range(8))
def test_what_rules_alone_found_is_counted_as_an_alert_at_a_time(seed: int, tmp_path: Path) -> None:
    lake = draw(seed)
    store = open_store(tmp_path)
    case_of = fill(store, lake)

    values = measured(store)

    assert values == expected(lake, case_of, latest(lake), "verdicts")
    assert values.without_case
    by_name = {one.rule: one for one in values.rules}
    assert 0 < by_name["wide"].alone.alerts < by_name["wide"].found.alerts
    assert not by_name["within"].alone.alerts
    assert not by_name["silent"].found.alerts
    of_desk = precision.measure_rules(store, None, Window(FIRST, LAST))
    for one in values.rules:
        of = of_desk.get((one.rule, 2), precision.NONE)
        counts = one.found
        assert (of.alerts, of.decided, of.right) == (counts.alerts, counts.decided, of.decided - counts.false_alarms)


def test_fraud_in_a_case_with_another_rules_alert_is_not_found_alone_in_a_later_case_either(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    of = [
        {"transaction_id": name, "account_id": "1", "timestamp": MARCH_1 + timedelta(days=day), "amount": 1.0}
        for name, day in (("fraud", 4), ("other", 4), ("later", 8))
    ]
    fraud, other, later = of
    raised = {"rule_version": 2, "entity": "account", "entity_key": "1", "detected_at": MARCH_1}
    evidence = [
        {"variable": "A", **{name: one[name] for name in ("transaction_id", "timestamp", "amount")}}
        for one in (fraud, later)
    ]
    local.append(store, tables.SILVER_ALERTS, [
        {**fraud, **raised, "alert_id": "1", "rule": "wide"},
        {**other, **raised, "alert_id": "2", "rule": "twin"},
        {**later, **raised, "alert_id": "3", "rule": "wide", "evidence": evidence},
    ])  # fmt: skip
    local.make_cases(store)
    decided = {"transaction_id": "fraud", "verdict": True, "decided_at": MARCH_1, "date": FIRST}
    local.append(store, tables.SILVER_VERDICTS, [decided])

    wide = {one.rule: one for one in measured(store).rules}["wide"]

    assert (wide.found.cases, wide.found.frauds) == (2, 1)
    assert (wide.alone.cases, wide.alone.frauds) == (1, 0)


def test_without_verdicts_the_labels_decide(tmp_path: Path) -> None:
    lake = draw(1)
    store = open_store(tmp_path)
    case_of = fill(store, lake, undecided=True)
    assert measured(store) == expected(lake, case_of, labels(lake), "labels")


def test_without_verdicts_and_labels_alerts_still_count(tmp_path: Path) -> None:
    lake = draw(2)
    store = open_store(tmp_path)
    case_of = fill(store, lake, undecided=True, unlabelled=True)
    assert measured(store) == expected(lake, case_of, {}, None)


@pytest.mark.stream
def test_many_alerts_are_counted_by_spark_alike(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = draw(3)
    opened = lake()
    case_of = fill(opened.store, drawn)
    live(opened.store, *NAMES)
    monkeypatch.setattr(api, "_MOST_WITHOUT_SPARK", len(drawn.alerts) - 1)
    assert fraudlake.rule_values(opened, FIRST, LAST) == expected(drawn, case_of, latest(drawn), "verdicts")
    assert "session" in vars(opened)


@pytest.mark.parametrize(
    ("found", "alone", "is_judged", "is_redundant"),
    [
        (Findings(alerts=30, decided=20, frauds=9), Findings(), True, True),
        (Findings(alerts=30, decided=19, frauds=9), Findings(), False, False),
        (Findings(alerts=30, decided=25), Findings(alerts=3, decided=3), True, True),
        (Findings(alerts=30, decided=25), Findings(alerts=3, decided=2), False, False),
        (Findings(alerts=90, decided=50), Findings(alerts=60, decided=20), True, True),
        (Findings(alerts=90, decided=50, frauds=1), Findings(alerts=60, decided=20, frauds=1), True, False),
    ],
)
def test_a_rule_is_judged_by_enough_decided_alerts_also_of_its_own(
    found: Findings, alone: Findings, is_judged: bool, is_redundant: bool
) -> None:
    of = RuleValue("busy", 1, found, alone)
    assert (of.is_judged, of.is_redundant) == (is_judged, is_redundant)


@pytest.fixture
def told(tmp_path: Path, fraudlake_here: FraudlakeHere) -> Told:
    """Run ``rules value`` on the lake of this test."""

    def told_(*arguments: str, code: int = 0) -> list[str]:
        done = fraudlake_here("--lake", str(tmp_path / "lake"), "rules", "value", *arguments)
        assert done.returncode == code, done.stderr
        return (done.stderr if code else done.stdout).splitlines()

    return told_


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A lake with the live rules ``a``, ``b`` and ``c``."""
    store = LocalStore(load(lake=plain_lake.make(tmp_path / "lake")))
    live(store, "a", "b", "c")
    return store


def paid(store: LocalStore, number: int, *rules: str, amount: float | None = 10.0) -> None:
    """Some payments, each of another account, on which rules have raised alerts."""
    for nth in range(number):
        name = f"{' '.join(rules)} {nth}"
        one = local.Payment(name, name, amount, nth / 60, rules)
        local.fill(store, [one], version=2)


def test_the_command_names_rules_that_find_what_others_find(store: LocalStore, told: Told) -> None:
    paid(store, 20, "a", "b")
    paid(store, 1, "a", amount=None)
    paid(store, 2, "c")
    local.verdicts(store, {"a b 0": True, "a 0": True, "c 0": False, **{f"a b {nth}": False for nth in range(1, 20)}})
    assert told() == [
        "3 live rules, alerts of 2026-03-07 to 2026-03-07; in parentheses what no other live rule found:",
        "a version 2: 21 (1) alerts, 21 (1) cases, 21 (1) payments",
        "  2 (1) frauds, amount 10.00 (0.00); 19 (0) false alarms of 21 (1) decided alerts; precision 0.095",
        "b version 2: 20 (0) alerts, 20 (0) cases, 20 (0) payments",
        "  1 (0) frauds, amount 10.00 (0.00); 19 (0) false alarms of 20 (0) decided alerts; precision 0.050",
        "c version 2: 2 (2) alerts, 2 (2) cases, 2 (2) payments",
        "  0 (0) frauds, amount 0.00 (0.00); 1 (1) false alarms of 1 (1) decided alerts; precision 0.000",
        "alerts are decided by verdicts",
        "finds no fraud that the others do not find: b, by 20 (0) decided alerts",
        "not judged: c, by 1 (1) decided alerts: 20 are needed, in parentheses as well if there are so many alerts",
    ]


def test_the_command_says_that_nothing_decides(store: LocalStore, told: Told) -> None:
    paid(store, 2, "a", "b")
    assert told()[1:] == [
        "a version 2: 2 (0) alerts, 2 (0) cases, 2 (0) payments",
        "b version 2: 2 (0) alerts, 2 (0) cases, 2 (0) payments",
        "c version 2: 0 (0) alerts, 0 (0) cases, 0 (0) payments",
        "no payment of these alerts has a verdict or a label: nothing says which alerts are right",
    ]


def test_a_payment_of_the_last_day_that_there_is_does_not_matter(store: LocalStore, told: Told) -> None:
    paid(store, 2, "a")
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    local.append(store, tables.SILVER_TRANSACTIONS, [{"transaction_id": "", "timestamp": last, "date": last.date()}])
    header, first, *_ = told()
    assert "of 2026-03-07 to 9999-12-31;" in header
    assert first.startswith("a version 2: 2 (2) alerts")


def test_the_command_refuses_what_it_cannot_compare(store: LocalStore, told: Told) -> None:
    (refused,) = told(code=1)
    assert refused == "fraudlake: there are no transactions yet: run 'fraudlake run'"
    paid(store, 2)
    assert told()[-1] == "no live rule has an alert on these days"
    (refused,) = told("--from", "2026-03-08", code=2)
    assert refused.endswith("are of 2026-03-07 to 2026-03-07: give days within these")
    (refused,) = told("--from", "2026-03-08", "--to", "2026-03-01", code=2)
    assert refused.endswith("--from 2026-03-08 is after --to 2026-03-01: swap them")
    retired = [replace(version(name), status="retired") for name in "abc"]
    local.append(store, tables.SILVER_RULES, rule_table.rows_of(2, retired))
    (refused,) = told(code=2)
    assert refused.endswith("is live: 'fraudlake rules promote NAME' makes one live")
