"""Cases on the desk: an id goes on naming its case, whatever alerts come later."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fraudlake.review import event_log, item_state, items
from fraudlake_desk.review import actions
from tests.desk import local


def test_a_decided_case_that_a_late_alert_moves_keeps_its_verdict_and_is_open_again(tmp_path: Path) -> None:
    store = local.open_store(tmp_path / "lake")
    local.fill(store, [local.Payment(str(day), "1", hour=24 * day, rules=("pair",)) for day in range(1, 12)])
    second = items.require(store, "9 pair")
    assert second.item_id == "9 pair"
    event_log.record(store, second, "e", lambda before: actions.decide(second, before, "ann", "fraud", "e", {"9": 5.0}))

    local.fill(store, [local.Payment("late", "1", hour=12, rules=("pair",))])

    moved = items.require(store, "9 pair")
    state = item_state.state(event_log.read_events_of_items(store, moved.names), datetime.now(UTC))
    assert (moved.item_id, moved.transaction_ids) == ("8 pair", ("8", "9", "10", "11"))
    assert state.decision is not None and state.decision.verdict == "fraud"
    assert not state.covers(moved)
