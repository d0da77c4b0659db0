"""Suggested rules: what is planted is found, and what each rule adds is what its own alerts add on the later days."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks import rule_suggestion as benchmark
from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake, open_lake
from fraudlake.model import rule_candidates, rule_choice, rule_suggestion
from fraudlake.model.account_days import AccountDays
from fraudlake.model.rule_suggestion import RuleSuggestion
from fraudlake.rules import rule_file
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds import Rule
from fraudlake.settings import Settings
from fraudlake_tools import simulator
from tests import plain_lake
from tests.conftest import FraudlakeHere

COLUMNS = {"terminal_id": "string", "channel": "string", "is_abroad": "boolean"}
ENTITIES = {"terminal": "terminal_id"}
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 20
ROWS = 8_000


def settings_of(folder: Path, **given: Any) -> Settings:
    return Settings(lake=folder / "lake", columns=COLUMNS, entities=ENTITIES, **given)


def payments(seed: int, is_planted: bool = True) -> list[dict[str, Any]]:
    """Payments of 60 accounts. Fraud is large, or one of many at a terminal within minutes; or, if not planted, any."""
    draw = np.random.default_rng(seed)
    rows = []
    for n in range(ROWS):
        kind = draw.choice(["large", "crowd", ""], p=[0.01, 0.01, 0.98])
        crowd = 8 if kind == "crowd" else 1
        for seconds in range(crowd):
            amount = round(float(draw.lognormal(3, 0.7)), 2)
            is_large = is_planted and kind == "large"
            at = BEGIN + timedelta(days=DAYS) * (n / ROWS) + timedelta(seconds=20 * seconds)
            is_crowd = is_planted and kind == "crowd"
            rows.append(
                {
                    "account_id": f"a{draw.integers(60)}",
                    "timestamp": at,
                    "amount": amount + 900 if is_large else amount,
                    "label": bool(is_large or is_crowd or (not is_planted and draw.random() < 0.02)),
                    "date": at.date(),
                    "terminal_id": f"t{n % 500}" if is_crowd or draw.random() < 0.9 else None,
                    "channel": str(draw.choice(["pos", "e-com 'x'"])),
                    "is_abroad": None if draw.random() < 0.1 else bool(draw.random() < 0.2),
                }
            )
    return [{"transaction_id": f"p{n}", "source": "part-0", "position": n, **row} for n, row in enumerate(rows)]


def filled(folder: Path, rows: list[dict[str, Any]], **given: Any) -> Lake:
    settings = settings_of(folder, **given)
    lake = open_lake(settings)
    schema = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns).schema
    write_deltalake(settings.lake / "tables" / "silver_transactions", pa.Table.from_pylist(rows, schema), mode="append")
    return lake


def alerted(rows: list[dict[str, Any]], rule: Rule) -> set[tuple[str, date]]:
    """The days of accounts with an alert, by the rule's own evaluation."""
    settings = Settings(columns=COLUMNS, entities=ENTITIES)
    compiled = rule.compile(query_columns(settings.columns), settings.entities)
    with_key = [row for row in rows if all(row[name] is not None for name in compiled.partition_by)]
    schema = tables.with_declared(tables.SILVER_TRANSACTIONS, settings.columns).schema
    raised = compiled.evaluate(pa.Table.from_pylist(with_key, schema)).alerts
    last = [with_key[alert.rows[-1]] for alert in raised]
    return {(row["account_id"], row["date"]) for row in last}


def days_of(rows: list[dict[str, Any]], span: str) -> list[dict[str, Any]]:
    first, last = map(date.fromisoformat, span.split(" to "))
    return [row for row in rows if first <= row["date"] <= last]


def require_true(suggested: RuleSuggestion, rows: list[dict[str, Any]], found: set[tuple[str, date]]) -> None:
    """Compare what a suggestion says with the alerts of its rules; ``found`` are days with alerts of live rules."""
    tested = days_of(rows, suggested.tested)
    days = {row["date"] for row in tested}
    amounts: dict[tuple[str, date], float] = {}
    for row in tested:
        if row["label"]:
            key = (row["account_id"], row["date"])
            amounts[key] = amounts.get(key, 0.0) + row["amount"]
    assert suggested.frauds == len(amounts)
    assert suggested.found_by_live == len(found & {*amounts})
    known = {*found}
    for one in suggested.additions:
        new = {key for key in alerted(rows, one.rule) if key[1] in days} - known
        known |= new
        assert one.accounts_a_day == pytest.approx(len(new) / len(days))
        assert (one.frauds, one.genuine) == (len(new & {*amounts}), len(new - {*amounts}))
        assert one.amount == pytest.approx(sum(amounts[key] for key in new & {*amounts}))
    assert suggested.found_by_all == len(known & {*amounts})


@pytest.mark.parametrize("seed", [1, 2])
def test_planted_fraud_is_found_and_what_each_rule_adds_is_what_its_alerts_add(seed: int, tmp_path: Path) -> None:
    rows = payments(seed)
    lake = filled(tmp_path, rows, labels="flink")
    suggested = rule_suggestion.suggest(lake, 40)
    require_true(suggested, rows, set())
    assert suggested.found_by_all > 0.9 * suggested.frauds
    assert {one.rule.entity for one in suggested.additions} == {"account", "terminal"}
    assert len(suggested.additions) <= 4
    assert suggested.learned < suggested.tested
    file = tmp_path / "rules.toml"
    file.write_text(suggested.toml())
    assert [rule for rule, _ in rule_file.read(file)] == [*suggested.rules]


def test_the_budget_holds_on_the_days_that_rules_are_found_on(tmp_path: Path) -> None:
    rows = payments(3)
    lake = filled(tmp_path, rows, labels="flink")
    for budget in (1, 3, 8):
        suggested = rule_suggestion.suggest(lake, budget)
        learned = days_of(rows, suggested.learned)
        days = {row["date"] for row in learned}
        raised = set[tuple[str, date]]().union(*(alerted(rows, rule) for rule in suggested.rules))
        assert len({key for key in raised if key[1] in days}) <= budget * len(days)


def test_what_live_rules_find_counts_as_found(tmp_path: Path) -> None:
    rows = payments(4)
    lake = filled(tmp_path, rows, labels="flink")
    whole = rule_suggestion.suggest(lake, 40)
    crowds = next(one.rule for one in whole.additions if one.rule.entity == "terminal")
    found = alerted(rows, crowds)
    live = {"rule": "small_then_large", "kind": "small_then_large", "entity": "account"}
    noon = datetime.min.time().replace(hour=12, tzinfo=UTC)
    alerts = [
        {
            **live,
            "alert_id": f"{n}",
            "account_id": account,
            "timestamp": datetime.combine(day, noon),
        }
        for n, (account, day) in enumerate(sorted(found))
    ]
    # What a rule that is not live has raised does not count.
    alerts += [{**alert, "rule": "former", "account_id": f"a{n}"} for n, alert in enumerate(alerts[:60])]
    plain_lake.fill(tmp_path / "lake", tables.SILVER_ALERTS, *alerts)
    suggested = rule_suggestion.suggest(lake, 40)
    require_true(suggested, rows, found)
    assert suggested.found_by_live > 0
    assert {one.rule.entity for one in suggested.additions} == {"account"}


def test_fraud_without_a_pattern_suggests_nothing(tmp_path: Path) -> None:
    lake = filled(tmp_path, payments(5, is_planted=False), labels="flink")
    suggested = rule_suggestion.suggest(lake, 40)
    assert suggested.rules == ()
    assert suggested.tried > 50


def test_no_limit_beyond_the_budget_is_chosen_however_rare_fraud_is() -> None:
    """One day of an account in a thousand has fraud, so that precisions are less apart than a tie is."""
    number = np.arange(60_000)
    silver = pa.table(
        {
            "account_id": [f"a{n % 3000}" for n in number],
            "timestamp": pa.array([BEGIN + timedelta(days=int(n) // 3000) for n in number], pa.timestamp("us", "UTC")),
            "amount": np.ones(len(number)),
        }
    )
    is_fraud = number % 1000 == 7
    nothing = pa.table({"account_id": pa.array([], pa.string()), "day": pa.array([], pa.date32())})
    tested_from = (BEGIN + timedelta(days=19)).replace(tzinfo=None)
    days = AccountDays(silver, pa.array(is_fraud), tested_from, tested_from, nothing)
    alerted = {True: number % 8 == 7, False: number % 2 == 1}
    rule = rule_candidates.candidates(Settings(), {}, 100.0)[0]
    trials = [
        rule_choice.Trial(
            rule.model_copy(update={"where": "amount > 0" if is_narrow else None}),
            np.array([1.0]),
            days.highest(is_alerted.astype(float)).astype(np.uint8),
        )
        for is_narrow, is_alerted in alerted.items()
    ]
    chosen = rule_choice.choose(trials, days, 8_000)
    assert [choice.trial for choice in chosen] == [trials[0]]
    assert (chosen[0].is_alerted & days.is_learned).sum() <= 8_000


def test_names_of_the_lakes_rules_are_not_taken() -> None:
    rule = rule_candidates.candidates(Settings(), {}, 100.0)[0]
    additions = [rule_suggestion.Addition(rule, 1.0, 1, 0, 1.0)] * 2
    names = [one.rule.name for one in rule_suggestion._named(additions, {"account_max_1_transaction"})]
    assert names == ["account_max_1_transaction_2", "account_max_1_transaction_3"]


@pytest.mark.parametrize(
    "values", [[5.0, 7.0, 7.0, 12.0], [0.0, 3.14159, 1499.99, 1500.0, 0.00012], [-0.0, -86_399.5, -12.0]]
)
def test_a_limit_is_just_below_each_value(values: list[float]) -> None:
    for is_whole in {False, all(map(float.is_integer, values))}:
        limits = rule_choice._limits(np.array(values), is_whole)
        for one in values:
            nearest = max(limit for limit in limits if limit < one)
            assert one - nearest <= (1 if is_whole else max(abs(one) * 0.2, 0.1))
        if not is_whole:
            assert all(float(f"{limit:.1e}") == limit for limit in limits)


def test_all_candidates_fit_the_columns(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, row_retention={"silver_transactions": "7 days"})
    rules = rule_candidates.candidates(settings, {"channel": ["e-com 'x'"]}, 250.0)
    for rule in rules:
        rule.check(query_columns(settings.columns), settings.entities)
    assert len({rule.model_dump_json() for rule in rules}) == len(rules)
    assert {rule.where for rule in rules} >= {"`channel` = 'e-com ''x'''", "`is_abroad`", "amount >= 250"}
    assert max(rule.duration or timedelta(0) for rule in rules) == timedelta(days=7)


def test_candidates_may_have_columns_that_are_keywords(tmp_path: Path) -> None:
    columns = {"order": "string", "Group": "string", "from": "boolean"}
    settings = Settings(lake=tmp_path / "lake", columns=columns, entities={"group": "Group"})
    for rule in rule_candidates.candidates(settings, {"order": ["web"]}, 250.0):
        rule.check(query_columns(settings.columns), settings.entities)


def test_too_few_days_and_labels_are_refused(tmp_path: Path) -> None:
    rows = payments(6)
    with pytest.raises(FraudlakeError, match="cannot suggest rules: no transaction has a label"):
        rule_suggestion.suggest(filled(tmp_path / "none", [{**row, "label": None} for row in rows], labels="flink"), 5)
    times = [BEGIN + (row["timestamp"] - BEGIN) / 8 for row in rows]
    brief = [{**row, "timestamp": at, "date": at.date()} for row, at in zip(rows, times, strict=True)]
    with pytest.raises(FraudlakeError, match="on 3 whole days or more, and measured on a later one"):
        rule_suggestion.suggest(filled(tmp_path / "brief", brief, labels="flink"), 5)


def test_the_command_writes_a_file_of_drafts(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    lake = filled(tmp_path, payments(7), labels="flink")
    file = tmp_path / "rules.toml"
    command = ("--lake", str(lake.folder), "rules", "suggest", "--budget")
    done = fraudlake_here(*command, "20 accounts a day", "--labels", "flink", "--out", str(file), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["found_by_all"] > 0.6 * told["frauds"]
    assert [rule.name for rule, _ in rule_file.read(file)] == [one["rule"]["name"] for one in told["rules"]]
    assert fraudlake_here("--lake", str(lake.folder), "rules", "add", str(file)).returncode == 0
    again = fraudlake_here(*command, "20 accounts a day", "--out", str(file))
    assert (again.returncode, again.stderr.count("it exists: name another file")) == (2, 1)
    wrong = fraudlake_here(*command, "some", "--out", str(tmp_path / "other.toml"))
    assert (wrong.returncode, wrong.stderr.count("is not a budget: write one such as '50 accounts a day'")) == (2, 1)


def test_the_command_says_that_nothing_is_to_be_added(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    rows = payments(5)
    lake = filled(tmp_path, rows, labels="flink")
    live = {"rule": "small_then_large", "kind": "small_then_large", "entity": "account"}
    plain_lake.fill(
        tmp_path / "lake",
        tables.SILVER_ALERTS,
        *({**live, **{name: row[name] for name in ("account_id", "timestamp")}, "alert_id": f"{n}"}
          for n, row in enumerate(rows)),
    )  # fmt: skip
    file = tmp_path / "rules.toml"
    command = ("--lake", str(lake.folder), "rules", "suggest", "--budget", "20 accounts a day", "--labels", "flink")
    done = fraudlake_here(*command, "--out", str(file))
    assert (done.returncode, file.exists()) == (0, False), done.stderr
    assert done.stdout.endswith(
        "no threshold adds enough fraud, within the budget, to what live rules find: no file is written\n"
    )


def test_on_simulated_fraud_suggested_rules_find_more_than_the_hand_made_ones_of_the_demo(tmp_path: Path) -> None:
    rate = 40_000 / (20 * 86_400)
    traffic = simulator.Traffic(accounts=400, rate=rate, fraud=0.005, columns=True, seed=1)
    compared = benchmark.compared(tmp_path, traffic, 40_000, 15)
    hand_made, _, suggested = (compared[name]["recall"] for name in list(compared)[:3])
    assert 0.1 < hand_made < suggested / 1.5
