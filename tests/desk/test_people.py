"""What people did, from events that are written here by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from fraudlake.review import item_state
from fraudlake.review.event import Event, Kind
from fraudlake.review.item import Item
from fraudlake.review.items import Queued
from fraudlake.review.window import Window
from fraudlake_desk.queue import people

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
WEEK = Window(date(2026, 3, 2), date(2026, 3, 8))


def event(item: str, kind: Kind, analyst: str, minute: int, **given: object) -> Event:
    at = NOON + timedelta(minutes=minute)
    return Event(f"{item} {minute}", item, kind, analyst, at, "7", "account", "7", transaction_ids=("t",), **given)


def test_each_person_has_their_verdicts_and_the_time_to_them() -> None:
    fraud = {"verdict": "fraud", "fraud_ids": ("t",), "fraud_amount": 40.0}
    work = people.count_work(
        [
            event("a", "taken", "ann", 0, expires_at=NOON + timedelta(hours=1)),
            event("a", "noted", "bob", 1, note="seen"),
            event("a", "verdict", "ann", 3, **fraud),
            event("b", "verdict", "ann", 4, verdict="genuine"),  # she had not taken it: no time is known
            event("a", "corrected", "bob", 5, verdict="genuine"),
            event("b", "corrected", "bob", 6, verdict="genuine"),  # he agrees
            event("c", "waiting", "bob", 7, expires_at=NOON + timedelta(days=1)),
            event("d", "verdict", "ann", 8, verdict="unsure"),
            event("d", "withdrawn", "ann", 9),
            event("e", "taken", "cid", 10, expires_at=NOON + timedelta(hours=1)),
            event("f", "verdict", "dan", -8 * 24 * 60, verdict="fraud"),  # a week before
        ],
        WEEK,
        NOON + timedelta(minutes=11),
    )
    ann, bob, cid = work
    assert (ann.name, ann.verdicts, ann.decided) == ("ann", {"fraud": 1, "genuine": 1, "unsure": 1}, 3)
    assert (ann.fraud_amount, ann.median_seconds, ann.overturned, ann.withdrawn) == (40.0, 180.0, 1, 1)
    assert (bob.name, bob.decided, bob.median_seconds, bob.set_aside, bob.overturned) == ("bob", 2, None, 1, 0)
    assert (cid.name, cid.decided, cid.held) == ("cid", 0, 1)


def test_fraud_that_is_marked_again_or_withdrawn_counts_once_or_not_at_all() -> None:
    def decided(item: str, kind: Kind, analyst: str, minute: int, amount: float) -> Event:
        return event(item, kind, analyst, minute, verdict="fraud", fraud_ids=("t",), fraud_amount=amount)

    work = people.count_work(
        [
            decided("a", "verdict", "ann", 0, 40.0),
            decided("a", "corrected", "ann", 1, 50.0),  # with one payment more
            decided("b", "verdict", "ann", 2, 1000.0),
            event("b", "withdrawn", "ann", 3),  # by Undo
            decided("c", "verdict", "ann", 4, 7.0),
            decided("c", "corrected", "bob", 5, 7.0),  # a second look that agrees
            decided("d", "verdict", "ann", 6, 300.0),
            event("d", "corrected", "bob", 7, verdict="genuine"),
        ],
        WEEK,
        NOON + timedelta(minutes=8),
    )

    assert [(one.name, one.fraud_amount) for one in work] == [("ann", 357.0), ("bob", 7.0)]
    assert people.total(work, []).fraud_amount == 57.0


def test_of_no_events_nobody_did_anything() -> None:
    assert people.count_work([], WEEK, NOON) == []


def test_what_all_did_is_added_up_beside_what_is_left_of_the_queues() -> None:
    item = Item("a", "a", "account", "7", "7", ("t",), frozenset({"a"}))
    row = {"item_id": "a"}
    decision = event("a", "verdict", "ann", 3, verdict="fraud", fraud_ids=("t",), fraud_amount=40.0)
    free, decided = item_state.state([], NOON), item_state.state([decision], NOON)
    queued = [
        Queued(row, item, free, due_at=NOON),
        Queued(row, item, free, due_at=NOON + timedelta(minutes=1)),
        Queued(row, item, decided, due_at=NOON),
        Queued(row, item, free, is_part=True, is_repeated=True, due_at=NOON),
    ]
    taken = [event(name, "taken", "ann", 0, expires_at=NOON + timedelta(hours=1)) for name in ("a", "b")]
    work = people.count_work([*taken, decision, event("b", "verdict", "bob", 9, verdict="genuine")], WEEK, NOON)

    total = people.total(work, queued)

    assert (total.queued, total.open, total.late) == (3, 2, 1)
    assert (total.verdicts, total.fraud_amount) == ({"fraud": 1, "genuine": 1, "unsure": 0}, 40.0)
    assert (total.median_seconds, total.overturned) == (180.0, 0)
