"""What if: the alerts that appear and go are those of a replay with the changed rule, and of a plain oracle."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from fraudlake import api, tables
from fraudlake.detection import alert_changes, alerts, evidence, rule_table
from fraudlake.detection.list_entries import Entry, with_entries
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import THE_ACCOUNT
from fraudlake.lake.local_store import LocalStore
from fraudlake.operations.rebuild import rebuild
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds import RULE, Rule
from fraudlake.settings import Settings
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from tests import oracle, plain_lake
from tests.desk import small_lake
from tests.detection import plain_rules
from tests.oracle import SECOND

START = datetime(2026, 3, 6, tzinfo=UTC)
DAYS = 4
PAIR = {"kind": "small_then_large", "name": "pair", "small_below": 10.0, "large_above": 60.0, "within": "10 minutes"}
BUSY = {"kind": "threshold", "name": "busy", "aggregate": "sum", "window": "120 minutes", "above": 150.0}
MAXIMUM = {"kind": "threshold", "name": "top", "aggregate": "max", "window": "3 transactions", "above": 95.0}
DEFINE = {"A": "A.amount < 20", "B": "B.amount > A.amount", "C": "C.amount > B.amount"}
RISING = {
    "kind": "pattern",
    "name": "rising",
    "pattern": "A B C",
    "define": DEFINE,
    "measures": {"first": "A.amount"},
}
CHANGES = [
    (PAIR, {"large_above": 50.0}),
    (PAIR, {"large_above": 70.0, "small_below": 20.0}),
    (BUSY, {"above": 120.0}),
    (BUSY, {"window": "60 minutes"}),
    (MAXIMUM, {"above": 97.0}),
    (RISING, {"define": {**DEFINE, "A": "A.amount < 12"}}),
]


def drawn(seed: int, count: int = 4_000) -> list[oracle.Row]:
    """Payments of twelve accounts over four days, no two at the same time."""
    draw = random.Random(seed)
    times = sorted(draw.sample(range(DAYS * 86_400), count))
    begin = int(START.timestamp())
    return [
        oracle.Row(f"a{draw.randrange(12)}", (begin + time) * SECOND, round(draw.uniform(1, 100), 2), "part-0", number)
        for number, time in enumerate(times)
    ]


def table(rows: list[oracle.Row]) -> pa.Table:
    return pa.table(
        {
            "transaction_id": [f"t{row.position}" for row in rows],
            "account_id": [row.account_id for row in rows],
            "timestamp": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
            "amount": [row.amount for row in rows],
            "label": [row.amount > 90 for row in rows],
            "source": [row.source for row in rows],
            "position": [row.position for row in rows],
            "verdict": pa.array([None if row.position % 3 else row.amount > 80 for row in rows], pa.bool_()),
        }
    )


def evaluated(rule: Rule, rows: pa.Table) -> list[pa.Table]:
    compiled = rule.compile(query_columns({}))
    return [evidence.table(rows, [*compiled.evaluate(rows).alerts], compiled.columns, THE_ACCOUNT)]


def last_rows(fields: dict[str, Any], rows: list[oracle.Row]) -> set[int]:
    """The positions of the transactions that complete the alerts of a rule, by the plain oracle."""
    return {positions[-1] for positions, _ in plain_rules.alerts(fields, rows)}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("fields", "changed"), CHANGES)
def test_what_appears_and_goes_is_what_an_oracle_finds(
    fields: dict[str, Any], changed: dict[str, Any], seed: int
) -> None:
    rows = drawn(seed)
    before, after = (last_rows({**fields, **of}, rows) for of in ({}, changed))
    old, new = (RULE.validate_python({**fields, **of}) for of in ({}, changed))
    found = alert_changes.compare(evaluated(old, table(rows)), evaluated(new, table(rows)), (old, new))
    by_side: dict[str, set[int]] = {"appear": set(), "gone": set(), "stay": set()}
    for row in found.rows.to_pylist():
        by_side[row["change"]].add(int(row["transaction_id"][1:]))
        at = rows[int(row["transaction_id"][1:])]
        assert (row["account_id"], row["amount"]) == (at.account_id, at.amount)
    assert (by_side["appear"], by_side["gone"]) == (after - before, before - after)
    assert len(before ^ after) > 3
    assert found.figures["stay"] == len(before & after)
    touched = {rows[number].account_id for number in before ^ after}
    assert by_side["stay"] == {number for number in before & after if rows[number].account_id in touched}
    assert [found.figures[side]["alerts"] for side in ("before", "after")] == [len(before), len(after)]


def test_examples_are_those_that_are_closest_to_the_new_limit() -> None:
    rows = drawn(3)
    old, new = (RULE.validate_python({**MAXIMUM, "above": above}) for above in (80.0, 90.0))
    found = alert_changes.compare(evaluated(old, table(rows)), evaluated(new, table(rows)), (old, new))
    gone = last_rows({**MAXIMUM, "above": 80.0}, rows) - last_rows({**MAXIMUM, "above": 90.0}, rows)
    of_account: dict[str, list[oracle.Row]] = {}
    for row in rows:
        of_account.setdefault(row.account_id, []).append(row)
    largest = []
    for own in of_account.values():
        for number, row in enumerate(own):
            if row.position in gone:
                largest.append(max(other.amount for other in own[max(0, number - 2) : number + 1]))
    nearest = sorted((90 - amount) / 90 for amount in largest)[: alert_changes.EXAMPLES]
    assert [example.distance for example in found.figures["examples"]["gone"]] == pytest.approx(nearest)
    assert len(nearest) == alert_changes.EXAMPLES
    assert all(example.story.startswith("Account a") for example in found.figures["examples"]["gone"])


def test_a_rule_that_is_new_has_only_alerts_that_appear_and_entries_suppress_them(tmp_path: Path) -> None:
    rows = drawn(4)
    new = RULE.validate_python(BUSY)
    times = {"starts_at": START, "ends_at": START + timedelta(days=2), "at": START}
    entry = Entry("e1", "suppressed", "busy", "account", "a1", "a1", reason="travel", author="kim", **times)
    store = LocalStore(Settings(lake=small_lake.make(tmp_path / "lake")))
    store.append(tables.SILVER_LIST_ENTRIES, pa.Table.from_pylist([entry.added], tables.SILVER_LIST_ENTRIES.schema))
    marked = [with_entries(part, store, new) for part in evaluated(new, table(rows))]
    found = alert_changes.compare((), marked, (None, new), START + timedelta(days=1))
    expected = [rows[number] for number in sorted(last_rows(BUSY, rows))]
    from_second_day = [row for row in expected if row.time >= (START + timedelta(days=1)).timestamp() * SECOND]
    until = entry.ends_at.timestamp() * SECOND
    is_suppressed = [row.account_id == "a1" and row.time < until for row in from_second_day]
    assert found.figures["suppressed"] == [0, sum(is_suppressed)]
    assert sum(is_suppressed) > 0
    assert set(found.rows["change"].to_pylist()) == {"appear"}
    assert len(found.rows) == len(from_second_day) - sum(is_suppressed)


def test_fraud_before_the_range_is_not_among_the_detected() -> None:
    """The fraud of the range alone is what there is to detect: recall was above 1."""
    rows, begin = drawn(6), START + timedelta(days=1)
    start = int(begin.timestamp()) * SECOND
    new = RULE.validate_python(BUSY)
    found = alert_changes.compare((), evaluated(new, table(rows)), (None, new), begin)
    last = [rows[number] for number in last_rows(BUSY, rows) if rows[number].time >= start]
    frauds = {
        row.time
        for alert in last
        for row in rows
        if row.amount > 90 and row.account_id == alert.account_id and 0 <= alert.time - row.time < 7_200 * SECOND
    }
    detected = {time for time in frauds if time >= start}
    assert len(frauds) > len(detected) > 0
    assert found.figures["appear"]["truths"]["labels"][2] == len(detected)


@pytest.mark.stream
def test_ids_are_those_of_silver_alerts(spark: Any) -> None:
    pairs = [("t1", "t2"), ("a|b", "c"), ("a", "b|c"), ("é", "ü"), ("", "|")]
    rows = spark.createDataFrame([{"rule": "r", "first": one, "second": other} for one, other in pairs])
    of_spark = rows.select(alerts.alert_id("rule", "first", "second").alias("id"), F.col("first"), F.col("second"))
    found = {(row["first"], row["second"]): row["id"] for row in of_spark.collect()}
    assert found == {pair: evidence.alert_id("r", *pair) for pair in pairs}


def land(folder: Path, rows: list[oracle.Row]) -> None:
    pq.write_table(
        pa.table(
            {
                "dt": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
                "accountId": [row.account_id for row in rows],
                "amount": [row.amount for row in rows],
                "alert": [row.amount > 90 for row in rows],
            }
        ),
        folder / "part-0",
    )


@pytest.mark.parametrize(("first", "is_refused"), [(5, True), (6, True), (12, True), (13, False), (14, False)])
def test_a_rule_that_looks_back_to_removed_rows_is_refused(
    tmp_path: Path, first: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.what_if_of_transactions, "what_if", lambda *given: given[-2])
    root = plain_lake.make(tmp_path / "lake")
    opened = api.open_lake(lake=root)
    removed = {"table_name": "silver_transactions", "table_id": opened.store.identity(tables.SILVER_TRANSACTIONS)}
    plain_lake.fill(root, tables.GOLD_ROW_REMOVALS, {**removed, "version": 0, "rows": 9, "first_day": date(2026, 3, 6)})
    week = {**BUSY, "window": "7 days"}
    if is_refused:
        message = (
            "rows before 2026-03-06 have left by row_retention, and the rules look 7 days.* back: choose 2026-03-1"
        )
        with pytest.raises(UsageError, match=message):
            api.what_if(opened, week, date(2026, 3, first))
    else:
        assert api.what_if(opened, week, date(2026, 3, first)) == date(2026, 3, first)


@pytest.mark.stream
@pytest.mark.long
def test_a_replay_with_the_changed_rule_has_these_alerts_and_cases(lake: Callable[..., Any], landing: Path) -> None:
    land(landing, drawn(5))
    rules = json.dumps([PAIR, BUSY, RISING])
    opened = lake(rules=rules, ordering="event_time", case_gap="2 hours", case_length="1 day")
    for step in (ingest, refine, detect, aggregate):
        stream.run(opened, step.streams(opened), "available-now")
    first, last = date(2026, 3, 7), date(2026, 3, 9)
    present = {version.rule.name: version.rule for version in rule_table.read(opened).live}
    for fields, changed in (CHANGES[1], CHANGES[2], CHANGES[5]):
        new = RULE.validate_python({**fields, **changed})
        result = api.what_if(opened, new, first, last)
        alerts_before, cases_before = rows_of(opened)
        rule_table.apply(opened, [(new, "live"), *others(present, new)], "test", None)
        rebuild(opened, first, last, apply=True)
        alerts_after, cases_after = rows_of(opened)

        changes = result.rows.to_pylist()
        assert {row["alert_id"] for row in changes if row["change"] == "appear"} == alerts_after - alerts_before
        assert {row["alert_id"] for row in changes if row["change"] == "gone"} == alerts_before - alerts_after
        assert len(changes) > 5
        shared_before, shared_after = (set().union(*of.values()) for of in (cases_before, cases_after))
        appear = {case for case, own in cases_after.items() if not own & shared_before}
        gone = {case for case, own in cases_before.items() if not own & shared_after}
        has_others = {case for case, own in cases_after.items() if cases_before.get(case) != own} - appear
        assert set(result.cases.appear) == appear
        assert set(result.cases.gone) == gone
        assert set(result.cases.changed) == has_others
        opened_on = [result.cases.per_day[day.isoformat()] for day in (first, last)]
        assert [after for _, after in opened_on] == [on_day(opened, day) for day in (first, last)]

        rule_table.apply(opened, [(rule, "live") for rule in present.values()], "test", None)
        rebuild(opened, first, last, apply=True)
        assert rows_of(opened) == (alerts_before, cases_before)

    by_terminal = {**BUSY, "name": "pair", "entity": "terminal"}
    with pytest.raises(UsageError, match="entity = 'terminal' is not declared"):
        api.what_if(opened, by_terminal)


def others(present: dict[str, Rule], new: Rule) -> list[tuple[Rule, str]]:
    return [(rule, "live") for name, rule in present.items() if name != new.name]


def rows_of(lake: Any) -> tuple[set[str], dict[str, set[str]]]:
    """The ids of the alerts, and those of each case."""
    raised = lake.store.query(f"SELECT alert_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS)
    cases = lake.store.query(f"SELECT case_id, alert_ids FROM {tables.GOLD_CASES.name}", tables.GOLD_CASES)
    of_cases = {row["case_id"]: set(row["alert_ids"]) for row in cases.to_pylist()}
    return set(raised["alert_id"].to_pylist()), of_cases


def on_day(lake: Any, day: date) -> int:
    of = f"SELECT count(*) AS cases FROM {tables.GOLD_CASES.name} WHERE date = DATE '{day}'"
    return int(lake.store.query(of, tables.GOLD_CASES)["cases"][0].as_py())
