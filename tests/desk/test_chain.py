"""The chain of review events: whatever is changed without writing all later hashes anew is found."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from fraudlake.lake import chain
from fraudlake.review.event import Event

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


@pytest.fixture
def events() -> list[Event]:
    """Four verdicts of two analysts."""
    made: list[Event] = []
    for number in range(1, 5):
        at = NOON + timedelta(minutes=number)
        name = ("anna", "bert")[number % 2]
        event = Event(f"e{number}", f"case {number}", "verdict", name, at, "7", "account", "7", "genuine")
        before = made[-1].hash if made else None
        event = replace(event, number=number, transaction_ids=(f"t{number}",))
        made.append(replace(event, hash=chain.link(before, event)))
    return made


def test_events_as_they_were_written_fit(events: list[Event]) -> None:
    assert chain.verify(events) == chain.Verified(4, events[-1].hash, 0, [])
    assert chain.verify([]) == chain.Verified(0, None, 0, [])


@pytest.mark.parametrize(
    "change",
    [
        {"analyst": "carl"},
        {"verdict": "fraud"},
        {"at": NOON},
        {"transaction_ids": ()},
        {"note": "x"},
        {"hash": "0" * 64},
    ],
)
def test_an_altered_event_is_found(events: list[Event], change: dict[str, object]) -> None:
    for at in range(4):
        altered = [*events[:at], replace(events[at], **change), *events[at + 1 :]]
        assert chain.verify(altered).faults, f"event {at + 1}"


def test_two_analysts_who_change_places_are_found(events: list[Event]) -> None:
    first, second = replace(events[0], analyst="anna"), replace(events[1], analyst="bert")
    assert chain.verify([first, second, *events[2:]]).faults


def test_a_removed_event_is_found_and_a_cut_end_by_who_noted_its_hash(events: list[Event]) -> None:
    assert chain.verify([events[0], *events[2:]]).faults == ["event 2 is missing"]
    assert chain.verify([events[0], events[3]]).faults == ["event 2 is missing, and all to 3"]
    assert chain.verify(events[:3]).faults == []
    assert chain.verify(events[:3], (4, str(events[3].hash))).faults == [
        "event 4 has not the hash that was noted: events were cut off or written anew"
    ]
    assert chain.verify(events, (3, str(events[2].hash))).faults == []


def test_an_event_put_between_is_found(events: list[Event]) -> None:
    between = replace(events[1], event_id="new", number=3, hash=chain.link(events[1].hash, events[1]))
    later = [replace(event, number=event.number + 1) for event in events[2:]]
    assert chain.verify([*events[:2], between, *later]).faults
    assert chain.verify([*events[:3], between, events[3]]).faults[0] == "two events have the number 3"


def test_the_hash_is_that_of_json_without_nulls(events: list[Event]) -> None:
    text = (
        '[null, {"account_id": "7", "analyst": "bert", "at": "2026-03-07T12:01:00+00:00", "entity": "account", '
        '"entity_key": "7", "event_id": "e1", "fraud_ids": [], "item_id": "case 1", "kind": "verdict", "number": 1, '
        '"transaction_ids": ["t1"], "verdict": "genuine"}]'
    )
    assert events[0].hash == hashlib.sha256(text.encode()).hexdigest()
    merged = replace(events[1], kind="merged", merged_into="case 1")
    merged = replace(merged, hash=chain.link(events[0].hash, merged))
    assert chain.verify([events[0], merged]).faults == []
    assert chain.verify([events[0], replace(merged, merged_into="case 3")]).faults
    assert chain.verify([events[0], replace(merged, merged_into=None)]).faults


def test_an_event_that_forget_erased_is_counted_and_those_after_it_still_fit(events: list[Event]) -> None:
    erased = replace(events[1], kind="erased", account_id="", transaction_ids=(), is_erased=True)
    assert chain.verify([events[0], erased, *events[2:]]) == chain.Verified(4, events[-1].hash, 1, [])
    altered = replace(events[2], analyst="carl")
    assert chain.verify([events[0], erased, altered, events[3]]).faults


@dataclass(frozen=True)
class Later(Event):
    """An event of a later version, which has another field."""

    channel: str | None = None


def test_a_new_field_without_a_value_does_not_change_the_hashes_of_earlier_events(events: list[Event]) -> None:
    later = Later(**vars(events[0]))
    assert chain.link(None, later) == events[0].hash
    assert chain.link(None, replace(later, channel="phone")) != events[0].hash
