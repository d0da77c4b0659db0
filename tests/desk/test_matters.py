"""Matters: cases that analysts open by hand, merge and separate; a verdict on the whole labels all of its payments."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, item_state, items, merges
from fraudlake.review.event import Event, Verdict
from fraudlake.review.item_state import State
from fraudlake.settings import load
from fraudlake.tables import SILVER_VERDICTS
from fraudlake_desk.documents import dossier
from fraudlake_desk.queue import queue
from fraudlake_desk.queue.reviewed import Reviewed
from fraudlake_desk.review import actions, marks, matters, verdicts
from tests.desk import conftest
from tests.desk.local import MARCH_7, Payment, fill, open_store

DAY = date(2026, 3, 7)
NOW = MARCH_7 + timedelta(days=1)
LOCK = timedelta(minutes=30)
PAYMENTS = [
    Payment("a", "1", 100.0, rules=("pair",)),
    Payment("b", "1", 50.0, 36, rules=("pair",)),  # on 8 March
    Payment("c", "2", 1000.0, rules=("pair",)),
    Payment("d", "2", 10.0),
    Payment("e", "2", 30.0, 2),
    Payment("f", "3", 70.0, rules=("pair",)),
    *(Payment(f"o{n}", f"other {n}", float(n)) for n in range(10)),
]
A, B, C, F = "a pair", "b pair", "c pair", "f pair"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    opened = open_store(tmp_path / "lake", explore=0.4, case_gap="1 hour")
    fill(opened, PAYMENTS)
    return opened


def decide(
    store: LocalStore, name: str, verdict: Verdict, fraud: list[str] | None = None, analyst: str = "ann"
) -> Event:
    item, id_ = items.require(store, name), event_log.new_id()
    chosen = item.transaction_ids if fraud is None else fraud
    amounts = marks.amounts(store, item, chosen) if verdict == "fraud" else None

    def make(before: State) -> Event:
        return actions.decide(item, before, analyst, verdict, id_, amounts, "r", is_correction=before.covers(item))

    event = event_log.record(store, item, id_, make, NOW)
    verdicts.follow(store, item)
    return event


def withdraw(store: LocalStore, name: str, analyst: str = "ann") -> None:
    item, id_ = items.require(store, name), event_log.new_id()
    event_log.record(store, item, id_, lambda before: actions.withdraw(item, before, analyst, id_), NOW)
    verdicts.follow(store, item)


def take(store: LocalStore, name: str, analyst: str) -> None:
    item, id_ = items.require(store, name), event_log.new_id()
    event_log.record(store, item, id_, lambda before: actions.take(item, before, analyst, LOCK, id_), NOW)


def open_case(store: LocalStore, account: str, *payments: str, analyst: str = "ann", event_id: str = "") -> str:
    return matters.open_case(store, account, payments, analyst, "seen", event_id or event_log.new_id(), NOW).item_id


def merge(store: LocalStore, name: str, into: str, analyst: str = "ann") -> Event:
    return matters.merge(store, name, into, analyst, "one thief", event_log.new_id(), NOW)


def separate(store: LocalStore, name: str, analyst: str = "ann") -> Event:
    return matters.separate(store, name, analyst, "two thieves", event_log.new_id(), NOW)


def state_of(store: LocalStore, name: str) -> State:
    named = items.find(store, name)
    assert named is not None
    return item_state.state(event_log.read_events_of_items(store, named.item.names), NOW)


def labels(store: LocalStore) -> dict[str, bool]:
    """The latest verdict on each payment."""
    rows = store.query(
        f"SELECT * FROM {SILVER_VERDICTS.name} ORDER BY decided_at, verdict NULLS FIRST", SILVER_VERDICTS
    )
    latest = {row["transaction_id"]: row["verdict"] for row in rows.to_pylist()}
    return {id_: verdict for id_, verdict in latest.items() if verdict is not None}


def test_a_case_that_is_opened_by_hand_is_an_item_like_others(store: LocalStore) -> None:
    name = open_case(store, "2", "d", "e", event_id="once")
    assert open_case(store, "2", "d", "e", event_id="once") == name
    assert [event.kind for event in event_log.read_events(store)] == ["opened"]

    named = items.find(store, name)
    assert named is not None and named.case is not None
    assert named.item.transaction_ids == ("d", "e")
    assert (named.case["amount_at_risk"], named.case["alerts"]) == (40.0, 0)

    take(store, name, "bob")
    assert state_of(store, name).holder == "bob"
    assert decide(store, name, "fraud", ["d"], "bob").fraud_amount == 10.0
    assert labels(store) == {"d": True, "e": False}
    withdraw(store, name)
    assert labels(store) == {}
    assert chain.verify(event_log.read_events(store)).faults == []


def test_an_account_has_a_case_by_hand_for_its_own_payments_and_once(store: LocalStore) -> None:
    for account, payments, reason, message in (
        ("2", (), "r", "name the payments"),
        ("2", ("a",), "r", "account 2 has no payment a"),
        ("2", ("no",), "r", "account 2 has no payment no"),
        ("2", ("d",), " ", "give a reason why the case is opened"),
    ):
        with pytest.raises(UsageError, match=message):
            matters.open_case(store, account, payments, "ann", reason, event_log.new_id(), NOW)
    name = open_case(store, "2", "d")
    with pytest.raises(FraudlakeError, match=f"case {name}, which is open, has d already, opened by hand by ann: seen"):
        open_case(store, "2", "d", "e", analyst="bob")
    merge(store, name, C)
    with pytest.raises(FraudlakeError, match=f"case {C}, which is open, has d already"):
        open_case(store, "2", "d")
    decide(store, C, "genuine")
    assert open_case(store, "2", "d") != name


def test_the_queue_that_people_work_on_has_it_after_its_own_items(store: LocalStore) -> None:
    before_any_queue = open_case(store, "3", "f")
    assert items.days(store) == {NOW.date(): False}
    assert [one.row["item_id"] for one in items.listed(store, NOW.date(), NOW)] == [before_any_queue]
    built = queue.build(store, DAY, 5, now=NOW).rows

    name = open_case(store, "2", "d", analyst="bob")

    assert items.days(store) == {NOW.date(): False, DAY: True}
    assert items.latest(items.days(store)) == DAY
    listed = items.listed(store, DAY, NOW)
    assert [one.row["item_id"] for one in listed] == [*(row["item_id"] for row in built), name]
    last = listed[-1].row
    assert (last["kind"], last["rank"], last["reasons"]) == ("opened", len(built) + 1, "opened by hand by bob: seen")
    assert queue.build(store, DAY, 5, is_again=True, now=NOW).is_new  # nobody has worked on it
    for row in built:
        decide(store, row["item_id"], "genuine")
    offered = items.next_of(store, DAY, "ann", NOW)
    assert offered is not None and offered.item.item_id == name


def test_a_verdict_on_the_whole_is_about_all_parts(store: LocalStore) -> None:
    by_hand = open_case(store, "2", "d", "e")
    merge(store, C, by_hand)
    merge(store, A, C)

    for name in (A, C, by_hand):
        named = items.find(store, name)
        assert named is not None and named.item.item_id == by_hand
        assert sorted(named.item.transaction_ids) == ["a", "c", "d", "e"]
    with pytest.raises(UsageError, match=f"{A} is part of case {by_hand} now"):
        items.require(store, A)
    decide(store, by_hand, "fraud", ["a", "d"])
    assert labels(store) == {"a": True, "c": False, "d": True, "e": False}
    assert state_of(store, A).covers(items.require(store, by_hand))


def test_what_cannot_be_one_case_is_refused(store: LocalStore) -> None:
    (drawn, *_) = [row["item_id"] for row in queue.build(store, DAY, 5, now=NOW).rows if row["kind"] == "drawn"]
    take(store, F, "bob")
    decide(store, B, "genuine")
    for name, into, message in (
        (A, A, "are one case already"),
        (A, "no", "has no case 'no'"),
        (A, drawn, "drawn at random"),
        (drawn, A, "drawn at random"),
        (F, A, "bob holds f pair"),
        (A, F, "bob holds f pair"),
        (B, A, "ann decided genuine on b pair: withdraw the verdict first"),
    ):
        with pytest.raises(FraudlakeError, match=message):
            merge(store, name, into)
    with pytest.raises(UsageError, match="give a reason"):
        matters.merge(store, A, C, "ann", "", event_log.new_id(), NOW)
    merge(store, A, C)
    with pytest.raises(FraudlakeError, match="are one case already"):
        merge(store, C, A)
    with pytest.raises(FraudlakeError, match="are one case already"):
        merge(store, A, C)
    with pytest.raises(FraudlakeError, match=f"{A} is part of {C} already"):
        merge(store, A, B)
    merge(store, C, B)  # what is merged into a decided case opens it again
    whole = items.require(store, B)
    assert not state_of(store, B).covers(whole)


def test_of_two_who_merge_two_cases_into_each_other_at_once_the_second_is_refused(store: LocalStore) -> None:
    """The second has read everything before the first has written, and writes after it."""
    named = items.find(store, C)
    assert named is not None
    first = merge(store, A, C)
    event_id = event_log.new_id()

    def of_second(before: State) -> Event:
        other = items.find(store, A)
        assert other is not None
        return actions.relate(named.item, before, "bob", "merged", event_id, "r", other.item, before)

    with pytest.raises(FraudlakeError, match="one case already"):
        merge(store, C, A, "bob")
    assert merges.read_merges(store).into == {A: C}
    # Even if a program writes it, the circle is not closed: the first merge counts.
    event_log.record(store, named.item, event_id, of_second, NOW)
    assert merges.read_merges(store).into == {A: C} and first.merged_into == C


@pytest.mark.slow
def test_of_two_desks_that_write_at_once_one_opens_and_one_merges(store: LocalStore) -> None:
    fill(store, [Payment(f"p{n}", f"p{n}", rules=("pair",)) for n in range(8)])
    start = threading.Barrier(2)

    def race(analyst: str) -> list[bool]:
        own, pairs = LocalStore(store.settings), [(f"p{n} pair", f"p{n + 1} pair") for n in range(0, 8, 2)]
        acts: list[Callable[[], object]] = [
            partial(merge, own, *(pair if analyst == "ann" else reversed(pair)), analyst) for pair in pairs
        ]
        acts += [partial(open_case, own, f"other {n}", f"o{n}", analyst=analyst) for n in range(4)]
        return [was_allowed(act) for act in acts]

    def was_allowed(act: Callable[[], object]) -> bool:
        start.wait()
        try:
            act()
        except FraudlakeError:
            return False
        return True

    with ThreadPoolExecutor(2) as threads:
        of_ann, of_bob = threads.map(race, ("ann", "bob"))
    assert [one != other for one, other in zip(of_ann, of_bob, strict=True)] == [True] * 8
    assert len(merges.read_merges(store).into) == 4
    assert chain.verify(event_log.read_events(store)).faults == []


def test_who_has_read_a_case_before_it_became_a_part_cannot_take_it(store: LocalStore) -> None:
    item = items.require(store, A)
    merge(store, A, C)
    with pytest.raises(actions.TakenError, match=f"ann has merged {A} into {C}"):
        event_log.record(store, item, "late", lambda before: actions.take(item, before, "bob", LOCK, "late"), NOW)


def test_a_part_is_separated_unless_a_verdict_is_about_it(store: LocalStore) -> None:
    merge(store, A, C)
    decide(store, C, "fraud")
    with pytest.raises(FraudlakeError, match=f"the verdict on {C} is about 1 payment of {A}: withdraw it first"):
        separate(store, A)
    withdraw(store, C)
    take(store, C, "bob")
    with pytest.raises(FraudlakeError, match="bob holds c pair"):
        separate(store, A)
    separate(store, A, "bob")

    take(store, A, "ann")
    assert state_of(store, A).holder == "ann" and state_of(store, C).holder == "bob"
    assert items.require(store, C).transaction_ids == ("c",)
    with pytest.raises(UsageError, match="is not part of another case"):
        separate(store, A)


def test_the_queue_offers_the_whole_once(store: LocalStore) -> None:
    queue.build(store, DAY, 5, now=NOW)
    merge(store, A, C)

    listed = {one.row["item_id"]: one for one in items.listed(store, DAY, NOW)}
    assert (listed[A].is_part, listed[A].item.item_id, listed[A].is_repeated) == (True, C, True)
    assert not listed[C].is_part
    take(store, C, "bob")
    offered = items.next_of(store, DAY, "bob", NOW)
    assert offered is not None and offered.row["item_id"] == C
    decide(store, C, "genuine", analyst="bob")
    assert all(one.is_decided for one in items.listed(store, DAY, NOW) if one.row["item_id"] in (A, C))


def test_a_part_is_offered_if_the_whole_is_in_another_queue(store: LocalStore) -> None:
    queue.build(store, DAY, 5, now=NOW)
    merge(store, A, B)
    listed = {one.row["item_id"]: one for one in items.listed(store, DAY, NOW)}
    assert B not in listed and not listed[A].is_repeated and listed[A].item.item_id == B


def test_a_queue_has_one_row_for_parts_and_none_if_the_whole_is_decided(store: LocalStore) -> None:
    merge(store, A, C)
    rows = queue.build(store, DAY, 10, now=NOW).rows
    assert sorted(row["item_id"] for row in rows if row["kind"] == "case") == [C, F]
    assert not {"1", "2"} & {row["account_id"] for row in rows if row["kind"] == "drawn"}  # who decides on C sees both


def test_a_queue_leaves_out_a_part_whose_whole_is_decided(store: LocalStore) -> None:
    merge(store, A, C)
    decide(store, C, "genuine")
    rows = queue.build(store, DAY, 10, now=NOW).rows
    assert [row["item_id"] for row in rows if row["kind"] == "case"] == [F]
    assert not {"1", "2"} & {row["account_id"] for row in rows}


def test_a_case_that_alerts_join_goes_on_as_the_part_that_it_was(store: LocalStore) -> None:
    merge(store, A, C)
    fill(store, [Payment("late", "1", 5.0, 11.5, rules=("pair",))])  # the case has another earliest alert now

    named = items.find(store, A)
    assert named is not None and named.part is not None and named.part.item_id == "late pair"
    assert sorted(items.require(store, C).transaction_ids) == ["a", "c", "late"]


def test_two_merged_cases_that_a_late_alert_joins_are_one_without_the_merge(store: LocalStore) -> None:
    fill(store, [Payment("g", "1", 5.0, 13.5, rules=("pair",))])
    merge(store, "g pair", A)
    fill(store, [Payment("between", "1", 5.0, 12.75, rules=("pair",))])
    take(store, "g pair", "bob")
    assert state_of(store, A).holder == "bob" and merges.read_merges(store).into == {}


def test_estimates_take_each_listed_part_by_its_own_payments(store: LocalStore) -> None:
    queue.build(store, DAY, 7, now=NOW)
    merge(store, A, C)
    by_hand = open_case(store, "2", "d", "e")
    merge(store, C, by_hand)
    decide(store, by_hand, "fraud", ["c", "e"])
    decide(store, open_case(store, "other 1", "o1"), "fraud")
    for one in items.listed(store, DAY, NOW):
        if one.row["kind"] == "drawn":
            decide(store, one.row["item_id"], "genuine")

    past = Reviewed.read(store)

    assert past is not None
    assert (past.verdicts[A], past.verdicts[C]) == ("genuine", "fraud")
    assert past.decisions[C].fraud_amount == 1000.0
    latest = past.missed(DAY, DAY)
    assert latest is not None
    assert (latest.cases, latest.found, latest.found_amount, latest.unflagged.drawn) == (2, 1, 1000.0, 0)
    assert past.weights()["c"] == 1 and "e" not in past.weights()


def test_the_dossier_has_all_parts_and_says_if_there_are_no_alerts(tmp_path: Path) -> None:
    store = LocalStore(load(lake=conftest.fill(conftest.empty_lake(tmp_path / "lake"))))
    by_hand = open_case(store, "4", "t6", "t9")
    document = dossier.dossier(store, by_hand)
    assert "The case has no alerts: it was opened by hand." in str(document)
    assert (document.facts["alerts"], document.facts["transactions"]) == (0, 2)
    merge(store, "a5", by_hand)
    for name in ("a5", by_hand):
        document = dossier.dossier(store, name)
        (review_,) = [block for one in document.sections for block in one.blocks if block.title == "Review"]
        assert (document.facts["case"], document.facts["transactions"]) == (by_hand, 3)
        assert [row[3] for row in review_.rows] == ["opened", "merged"]
        assert all(id_ in str(document) for id_ in ("'t6'", "'t7'", "'t9'", "large raised a5"))


ANALYSTS = ("ann", "bob", "cat")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, 2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long)]
)
def test_after_any_events_nobody_shares_an_item_and_each_payment_has_its_last_label(
    store: LocalStore, seed: int
) -> None:
    """The truth is a plain replay of the events: sets of names that are one case, and the label last said."""
    chance = random.Random(seed)
    names, refused, done = [A, B, C, F], 0, 0

    def of_case(act: Callable[[str], object]) -> Callable[[], object]:
        return lambda: act(chance.choice(names))

    def act_of(analyst: str) -> list[Callable[[], object]]:
        return [
            of_case(lambda name: take(store, name, analyst)),
            of_case(lambda name: decide(store, name, "fraud", analyst=analyst)),
            of_case(lambda name: decide(store, name, chance.choice(["genuine", "unsure"]), analyst=analyst)),
            of_case(lambda name: withdraw(store, name, analyst)),
            of_case(lambda name: merge(store, name, chance.choice(names), analyst)),
            of_case(lambda name: merge(store, name, chance.choice(names), analyst)),
            of_case(lambda name: separate(store, name, analyst)),
            lambda: names.append(open_case(store, "2", chance.choice("de"), analyst=analyst)),
        ]

    for _ in range(60):
        try:
            chance.choice(act_of(chance.choice(ANALYSTS)))()
            done += 1
        except FraudlakeError:
            refused += 1

    events = event_log.read_events(store)
    assert done == len(events) > 15 and refused > 5
    assert chain.verify(events).faults == []
    into: dict[str, str] = {}
    holder: dict[str, str] = {}
    label: dict[str, bool] = {}
    said_by: dict[str, set[str]] = {}
    for event in events:
        item = event.item_id
        if event.kind in ("merged", "separated"):
            assert event.merged_into is not None
            assert holder.pop(item, event.analyst) == event.analyst
            into.pop(item, None) if event.kind == "separated" else into.update({item: event.merged_into})
        assert item not in into or event.kind == "merged"  # nothing is done to a part
        if event.kind in ("taken", "verdict", "corrected", "withdrawn"):
            assert holder.get(item, event.analyst) == event.analyst
        if event.kind == "taken":
            holder[item] = event.analyst
        if event.kind in ("verdict", "corrected", "withdrawn"):
            holder.pop(item, None)
            said = said_by.setdefault(item, set())
            for payment in event.transaction_ids:
                if event.verdict in ("fraud", "genuine"):
                    label[payment] = payment in event.fraud_ids
                    said.add(payment)
                elif payment in said:
                    label.pop(payment, None)
    for start in into:
        seen = {start}
        while start in into:
            start = into[start]
            assert start not in seen, "a circle"
            seen.add(start)
    assert labels(store) == label
    for name in {*names}:
        named = items.find(store, name)
        assert named is not None
        root = name
        while root in into:
            root = into[root]
        assert named.item.item_id == root
        assert state_of(store, name).holder == holder.get(root)
