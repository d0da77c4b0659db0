"""The review queue: the day's cases by their value, and accounts that are drawn among all others."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import cases, event_log, items
from fraudlake.review.event import Verdict
from fraudlake.tables import GOLD_CASES, SILVER_VERDICTS
from fraudlake_desk.queue import queue
from fraudlake_desk.review import actions, marks, verdicts
from tests.desk.local import MARCH_7, Payment, fill, open_store
from tests.desk.local import verdicts as put_verdicts

DAY = date(2026, 3, 7)
NOW = MARCH_7 + timedelta(days=1)
PAYMENTS = [
    Payment("a", "1", 100.0, rules=("pair",), probability=0.9),
    Payment("b", "1", 50.0, 13, rules=("pair", "burst"), probability=0.2),
    Payment("c", "2", 1000.0, rules=("burst",)),
    Payment("d", "3", 20.0, rules=("pair",), probability=0.99),
    Payment("e", "9", 5000.0, hour=40, rules=("pair",)),  # on 8 March
    *(Payment(f"o{n}", f"other {n}", float(n)) for n in range(20)),
]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    opened = open_store(tmp_path / "lake", explore=0.5)
    fill(opened, PAYMENTS)
    return opened


def by_rank(store: LocalStore, **given: Any) -> list[dict[str, Any]]:
    return queue.build(store, DAY, now=NOW, **given).rows


def decide(store: LocalStore, name: str, verdict: Verdict, analyst: str = "ann", at: datetime = NOW) -> None:
    item, event_id = items.require(store, name), event_log.new_id()
    fraud = marks.amounts(store, item, item.transaction_ids) if verdict == "fraud" else None
    event_log.record(
        store, item, event_id, lambda state: actions.decide(item, state, analyst, verdict, event_id, fraud), at
    )
    verdicts.follow(store, item)


def take(store: LocalStore, name: str, analyst: str, at: datetime = NOW) -> None:
    item, event_id, lock = items.require(store, name), event_log.new_id(), timedelta(minutes=30)
    event_log.record(store, item, event_id, lambda state: actions.take(item, state, analyst, lock, event_id), at)


def test_cases_come_by_probability_times_amount_and_the_day_counts(store: LocalStore) -> None:
    put_verdicts(store, {"c": False, "x": True})  # burst: one judged, no fraud

    rows = [row for row in by_rank(store, size=6) if row["kind"] == "case"]

    assert [(row["case_id"], row["priority"]) for row in rows] == [
        ("c burst", pytest.approx(1000 / 3)),
        ("a pair", pytest.approx(0.9 * 150)),
        ("d pair", pytest.approx(0.99 * 20)),
    ]
    assert rows[1]["reasons"] == "3 alerts of burst, pair; probability 0.90 by the model"
    assert rows[0]["reasons"] == "1 alert of burst; probability 0.33 by the precision of burst"


def test_the_declared_share_is_drawn_among_all_other_accounts_with_its_probability(store: LocalStore) -> None:
    rows = by_rank(store, size=4)

    listed = [row["account_id"] for row in rows if row["kind"] == "case"]
    drawn = [row for row in rows if row["kind"] == "drawn"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4]
    assert listed == ["2", "1"]
    assert {row["population"] for row in rows} == {21}  # 23 accounts paid on the day, account 3 among them
    assert [row["inclusion_probability"] for row in drawn] == [2 / 21] * 2
    assert not {row["account_id"] for row in drawn} & {"1", "2", "9"}
    assert all(row["inclusion_probability"] == 1 for row in rows if row["kind"] == "case")


def test_the_draw_is_the_same_for_a_day_and_a_seed_and_uniform_over_seeds(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake", explore=1.0)
    fill(store, PAYMENTS)

    def accounts(seed: int) -> list[str]:
        return [row["account_id"] for row in queue._draw(store, DAY, {"1", "2", "3"}, 5, seed)[0]]

    assert accounts(1) == accounts(1)
    drawn = Counter(account for seed in range(200) for account in accounts(seed))
    assert len(drawn) == 20
    assert all(25 < times < 80 for times in drawn.values())  # 50 each, give or take four deviations


def test_what_is_held_or_decided_is_left_out_and_nobody_draws_it(store: LocalStore) -> None:
    take(store, "a pair", "bob")
    decide(store, "c burst", "fraud")

    rows = by_rank(store, size=40)

    assert [row["case_id"] for row in rows if row["kind"] == "case"] == ["d pair"]
    assert {row["account_id"] for row in rows if row["kind"] == "drawn"} == {f"other {n}" for n in range(20)}


def test_a_decided_case_with_a_new_alert_is_in_the_queue_again(store: LocalStore) -> None:
    decide(store, "c burst", "genuine")
    fill(store, [Payment("f", "2", 30.0, 14, rules=("pair",))])

    assert "c burst" in [row["case_id"] for row in by_rank(store, size=10)]


def test_a_queue_is_built_once_and_again_only_if_nobody_works_on_it(store: LocalStore) -> None:
    first = queue.build(store, DAY, 4, now=NOW)
    same = queue.build(store, DAY, 10, now=NOW + timedelta(hours=1))
    assert (first.is_new, same.is_new) == (True, False)
    assert same.rows == first.rows

    larger = queue.build(store, DAY, 10, is_again=True, now=NOW)
    assert len(larger.rows) == 8
    take(store, larger.rows[0]["item_id"], "ann")
    with pytest.raises(FraudlakeError, match="the queue of 2026-03-07 is being worked on"):
        queue.build(store, DAY, is_again=True, now=NOW)
    assert items.queue_rows(store, DAY) == larger.rows


def test_the_next_item_is_ones_own_or_else_the_first_free_one(store: LocalStore) -> None:
    ids = [row["item_id"] for row in by_rank(store, size=4)]
    take(store, ids[0], "bob")
    decide(store, ids[1], "unsure")

    def next_of(analyst: str) -> str | None:
        queued = items.next_of(store, DAY, analyst, NOW)
        return queued and queued.row["item_id"]

    assert next_of("bob") == ids[0]
    assert next_of("ann") == ids[2]
    for item in ids[2:]:
        decide(store, item, "genuine")
    assert next_of("ann") is None


def test_verdicts_follow_events_once_and_a_correction_is_a_later_one(store: LocalStore) -> None:
    by_rank(store, size=4)
    drawn = next(row for row in items.queue_rows(store, DAY) if row["kind"] == "drawn")
    decide(store, "b burst", "fraud")  # an alert names its case
    decide(store, drawn["item_id"], "genuine")
    decide(store, "d pair", "unsure")
    item, event_id = items.require(store, "a pair"), event_log.new_id()
    event_log.record(
        store,
        item,
        event_id,
        lambda state: actions.decide(item, state, "bob", "genuine", event_id, reason="own card", is_correction=True),
        NOW,
    )  # and the process is killed before the verdicts follow

    assert verdicts.follow(store) == 2
    assert verdicts.follow(store) == 0

    rows = store.query("SELECT * FROM silver_verdicts ORDER BY decided_at", SILVER_VERDICTS).to_pylist()
    own = next(one.id for one in PAYMENTS if one.account == drawn["account_id"])
    assert Counter((row["transaction_id"], row["verdict"], row["analyst"]) for row in rows) == Counter(
        [("a", True, "ann"), ("b", True, "ann"), (own, False, "ann"), ("a", False, "bob"), ("b", False, "bob")]
    )
    assert rows[-1]["verdict"] is False
    assert {row["date"] for row in rows} == {DAY}


def test_an_unknown_item_is_refused_with_what_shows_the_known_ones(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="no case, alert or drawn account 'x': 'fraudlake queue list'"):
        items.require(store, "x")


def test_a_lake_without_transactions_cases_or_a_queue_says_what_to_run(tmp_path: Path) -> None:
    empty = open_store(tmp_path / "empty")
    with pytest.raises(UsageError, match="no transactions yet: run 'fraudlake run'"):
        queue.build(empty)
    with pytest.raises(UsageError, match="no review queue yet: run 'fraudlake queue build'"):
        queue.last(empty)
    assert len(cases.listed(empty)) == 0

    behind = open_store(tmp_path / "behind")
    fill(behind, PAYMENTS)
    behind.replace(GOLD_CASES, GOLD_CASES.schema.empty_table(), "true")
    with pytest.raises(UsageError, match="in no case yet: run 'fraudlake aggregate'"):
        queue.build(behind)


@pytest.mark.parametrize("day", [date(1, 1, 1), date(2026, 3, 6), date(2026, 3, 9), date(9999, 12, 31)])
def test_a_day_outside_those_of_the_lake_has_no_queue(store: LocalStore, day: date) -> None:
    with pytest.raises(UsageError, match=f"--day {day}: the transactions of .* are of 2026-03-07 to 2026-03-08: give"):
        queue.build(store, day, now=NOW)


def test_a_day_without_alerts_has_only_drawn_accounts(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake")
    fill(store, [Payment(f"o{n}", f"{n}") for n in range(5)])

    rows = queue.build(store, DAY, 100, now=NOW).rows

    assert Counter(row["kind"] for row in rows) == {"drawn": 5}
    assert {row["inclusion_probability"] for row in rows} == {1.0}


@pytest.mark.slow
def test_a_day_of_ten_thousand_cases_is_queued_and_listed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "lake", queue_size=11_000, explore=0.1)
    fill(store, [Payment(f"t{n}", f"{n}", 1.0 + n, rules=("pair",)) for n in range(10_000)])

    rows = queue.build(store, DAY, now=NOW).rows

    assert len(rows) == 9_900 + 100
    assert [row["priority"] for row in rows[:2]] == [5_000.0, 4_999.5]
    take(store, rows[5_000]["item_id"], "ann")
    listed = items.listed(store, DAY, NOW)
    assert [queued.state.holder for queued in listed].index("ann") == 5_000
