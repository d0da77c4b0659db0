"""Review under a clock that is ahead: one analyst holds an item, the line says what to do, and that works."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fraudlake.errors import FraudlakeError
from fraudlake.review import event_log, item_state
from fraudlake.review.event import Event
from fraudlake.review.item_state import State
from fraudlake_desk.review import actions
from tests.desk import local
from tests.desk.test_review import CASE, NOON, take

AHEAD = NOON + timedelta(days=730)


def test_an_item_that_was_taken_under_a_clock_that_was_ahead_is_freed_as_the_line_says(tmp_path: Path) -> None:
    store = local.open_store(tmp_path / "lake")
    take(store, "ann")
    take(store, "bob", AHEAD)  # to whose clock ann's time is over

    with pytest.raises(FraudlakeError) as refused:
        take(store, "ann", NOON + timedelta(minutes=1))
    assert str(refused.value) == (
        "bob holds a1 until 2028-03-06 12:30:00 UTC: if a clock was ahead, free it with "
        "'fraudlake review release a1 --force'"
    )

    def release(state: State) -> Event:
        return actions.release(CASE, state, "ann", "release", is_forced=True)

    def decide(state: State) -> Event:
        return actions.decide(CASE, state, "ann", "genuine", "decide")

    for event_id, make in (("release", release), ("decide", decide)):
        event_log.record(store, CASE, event_id, make, NOON + timedelta(minutes=2))
    events = event_log.read_events(store)
    assert [(event.kind, event.analyst) for event in events] == [
        ("taken", "ann"),
        ("taken", "bob"),
        ("released", "ann"),
        ("verdict", "ann"),
    ]
    times = [event.at for event in events]
    assert times == sorted(set(times)) and times[0] == NOON
    state = item_state.state(events, NOON + timedelta(minutes=3))
    assert state.holder is None and state.covers(CASE)
