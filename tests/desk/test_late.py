"""Late items: counted over all queues as the desk marks them on each, whatever people and alerts have done since."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from fraudlake.errors import FraudlakeError
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, items, late
from fraudlake.review.event import Event
from fraudlake.review.item_state import State
from fraudlake.review.late import Late
from fraudlake.tables import GOLD_CASES
from fraudlake_desk.queue import queue
from fraudlake_desk.review import actions
from tests.desk.local import MARCH_7, Payment, fill, open_store
from tests.desk.test_matters import decide, merge, open_case, separate, take, withdraw

FIRST, SECOND = date(2026, 3, 7), date(2026, 3, 8)
BUILT = MARCH_7 + timedelta(days=1)
LIMIT = timedelta(days=2)
DUE = BUILT + LIMIT
PAYMENTS = [
    Payment("a", "1", 100.0, rules=("pair",)),
    Payment("b", "1", 50.0, 36, rules=("pair",)),  # on 8 March
    Payment("c", "2", 1000.0, rules=("pair",)),
    Payment("d", "2", 10.0, 3),
    *(Payment(f"o{n}", f"other {n}", float(n)) for n in range(3)),
]
A, B, C = "a pair", "b pair", "c pair"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Two queues: cases A and C with an account that was drawn, and a day later B with the only account of that day."""
    opened = open_store(tmp_path / "lake", explore=0.4, case_gap="1 hour", review_limit="2 days")
    fill(opened, PAYMENTS)
    queue.build(opened, FIRST, 3, now=BUILT)
    queue.build(opened, SECOND, 3, now=BUILT + timedelta(days=1))
    return opened


def marked(store: LocalStore, now: datetime) -> set[str]:
    """The items with the mark *late* on the queue of any day."""
    return {one.item.item_id for day in items.days(store) for one in items.listed(store, day, now) if one.is_late}


def count(store: LocalStore, now: datetime = DUE) -> int:
    found = late.count(store, now).items
    assert found == len(marked(store, now))
    return found


def drawn(store: LocalStore) -> str:
    return next(str(row["item_id"]) for row in items.queue_rows(store, FIRST) if row["kind"] == "drawn")


def test_items_are_late_from_the_limit_on(store: LocalStore) -> None:
    assert late.count(store, DUE - timedelta(microseconds=1)) == Late()
    assert late.count(store, DUE) == Late(3, BUILT, FIRST)
    assert count(store, DUE + timedelta(days=1)) == 4


def test_a_decided_item_is_not_late_and_is_again_if_the_verdict_is_withdrawn(store: LocalStore) -> None:
    for name in (A, C, drawn(store)):
        decide(store, name, "genuine")
    assert late.count(store, DUE) == Late()
    assert late.count(store, DUE + timedelta(days=1)) == Late(1, BUILT + timedelta(days=1), SECOND)

    for name in (C, drawn(store)):
        withdraw(store, name)
    assert late.count(store, DUE) == Late(2, BUILT, FIRST)  # from when the queue was built, as before the verdict


def test_an_item_of_somebody_who_is_gone_is_late(store: LocalStore) -> None:
    item, id_ = items.require(store, A), event_log.new_id()

    def assign(before: State) -> Event:
        return actions.set_aside(item, before, "ann", "assigned", id_, "hers", assignee="who has left")

    event_log.record(store, item, id_, assign, BUILT)
    take(store, C, "who has left")
    assert count(store) == 3


def test_a_decided_case_that_gets_an_alert_is_late_again(store: LocalStore) -> None:
    decide(store, A, "fraud")
    decide(store, C, "fraud")
    fill(store, [Payment("c2", "2", 5.0, 12.5, rules=("pair",))])
    assert count(store) == 2

    fill(store, [Payment("c0", "2", 5.0, 11.5, rules=("pair",))])  # the case has another earliest alert now
    assert marked(store, DUE) == {"c0 pair", drawn(store)}
    assert count(store) == 2


def test_joined_cases_are_one_late_item(store: LocalStore) -> None:
    fill(store, [Payment("e", "1", 5.0, 13.5, rules=("pair",))])
    queue.build(store, FIRST, 5, now=BUILT, is_again=True)
    assert count(store) == 5
    fill(store, [Payment("between", "1", 5.0, 12.75, rules=("pair",))])
    assert count(store) == 4


def test_a_merged_case_is_late_until_the_whole_is_decided(store: LocalStore) -> None:
    decide(store, C, "genuine")
    merge(store, A, C)
    assert marked(store, DUE) == {C, drawn(store)}
    assert count(store) == 2
    decide(store, C, "genuine", analyst="bob")
    assert count(store) == 1


def test_a_part_counts_for_a_whole_whose_own_queue_is_younger(store: LocalStore) -> None:
    merge(store, A, B)
    assert marked(store, DUE) == {B, C, drawn(store)}
    assert late.count(store, DUE) == Late(3, BUILT, FIRST)


def test_a_case_opened_by_hand_is_late_from_when_it_was_opened(store: LocalStore) -> None:
    name = open_case(store, "2", "d")
    assert marked(store, DUE) == {A, C, drawn(store), name}
    assert count(store) == 4
    decide(store, name, "genuine")
    assert count(store) == 3


def test_many_cases_that_earlier_alerts_join_or_that_are_gone_are_late_as_the_queue_says(store: LocalStore) -> None:
    many = [f"m{number}" for number in range(24)]
    fill(store, [Payment(name, name, 50.0, rules=("pair",)) for name in many])
    queue.build(store, FIRST, 50, now=BUILT, is_again=True)
    fill(store, [Payment(f"{name} first", name, 50.0, 11.5, rules=("pair",)) for name in many[:12]])
    gone = ", ".join(f"'{name} pair'" for name in many[12:])
    store.replace(GOLD_CASES, store.query("SELECT * FROM gold_cases LIMIT 0", GOLD_CASES), f"case_id IN ({gone})")

    assert {f"{name} first pair" for name in many[:12]} | {f"{name} pair" for name in many[12:]} < marked(store, DUE)
    assert count(store) == len(items.queue_rows(store, FIRST)) > 24
    decide(store, "m0 first pair", "genuine")
    assert count(store) == len(items.queue_rows(store, FIRST)) - 1


def test_a_lake_without_queues_has_no_late_items(tmp_path: Path) -> None:
    assert late.count(open_store(tmp_path / "lake")) == Late()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_after_any_events_the_late_items_are_those_with_the_mark(
    store: LocalStore, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    names = [A, B, C, drawn(store)]
    for number in range(40):
        name, other, analyst = chance.choice(names), chance.choice(names), chance.choice(("ann", "bob"))
        act = chance.choice(("take", "decide", "decide", "withdraw", "merge", "separate", "open", "alert"))
        try:
            if act == "take":
                take(store, name, analyst)
            elif act == "decide":
                decide(store, name, "genuine", analyst=analyst)
            elif act == "withdraw":
                withdraw(store, name, analyst)
            elif act == "merge":
                merge(store, name, other, analyst)
            elif act == "separate":
                separate(store, name, analyst)
            elif act == "open":
                names.append(open_case(store, "2", "d", analyst=analyst))
            elif number % 5 == 0:
                hour = chance.uniform(10, 14)
                fill(store, [Payment(f"n{number}", chance.choice("12"), 5.0, hour, rules=("pair",))])
        except FraudlakeError:
            continue
        count(store, DUE + timedelta(days=1))
    found = late.count(store, DUE)
    monkeypatch.setattr(event_log, "_FEW", 0)  # read all events, as for more names than fit into a statement
    assert late.count(store, DUE) == found
