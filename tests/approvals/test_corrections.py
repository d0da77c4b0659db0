"""Verdicts in a lake that needs two people: the first is one person's, and overturning it needs a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.approvals import log
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import corrections, event_log
from fraudlake.review.corrections import Correction
from fraudlake.review.event import Event
from fraudlake.settings import Settings
from tests.approvals.conftest import Command
from tests.desk import small_lake
from tests.desk.small_lake import NOON

ITEM = "alert0"
PAYMENT = "0-4"


def label(store: LocalStore) -> bool | None:
    """The latest verdict on the payment of the item."""
    rows = store.rows(tables.SILVER_VERDICTS).to_pylist()
    latest = max((row for row in rows if row["transaction_id"] == PAYMENT), key=lambda row: row["decided_at"])
    verdict: bool | None = latest["verdict"]
    return verdict


@pytest.fixture
def decided(command: Command, store: LocalStore) -> LocalStore:
    """A lake in which ann has decided that the item is fraud."""
    assert command("ann", "review", "verdict", ITEM, "fraud")["verdict"] == "fraud"
    return store


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (("verdict", ITEM, "genuine", "--correct", "--reason", "own card"), False),
        (("withdraw", ITEM, "--reason", "another account"), None),
    ],
)
def test_a_verdict_is_overturned_when_another_person_agrees(
    decided: LocalStore, command: Command, arguments: tuple[str, ...], after: bool | None
) -> None:
    refused = command("bob", "review", *arguments)
    assert "request 1 waits for a second person, and nothing has changed" in refused
    assert label(decided) is True and len(event_log.read_events(decided)) == 1
    assert "request 1 is by bob" in command("bob", "approvals", "approve", "1", "--reason", "mine")
    shown = command("ann", "approvals", "show", "1")
    assert (shown["before"], shown["account_ids"]) == ({PAYMENT: "fraud"}, ["A0"])
    assert command("ann", "approvals", "approve", "1", "--reason", "I was wrong")["status"] == "carried out"
    assert label(decided) is after
    first, second = event_log.read_events(decided)
    assert (first.analyst, second.analyst, second.reason) == ("ann", "bob", arguments[-1])
    assert second.event_id == log.find(decided, 1).event.event_id


def test_an_author_corrects_no_verdict_of_their_own_alone_either(decided: LocalStore, command: Command) -> None:
    assert "waits" in command("ann", "review", "verdict", ITEM, "genuine", "--correct", "--reason", "a slip")
    assert label(decided) is True


def test_a_verdict_on_another_case_with_the_payment_needs_a_second_person_too(
    decided: LocalStore, command: Command
) -> None:
    other = command("bob", "review", "open", "A0", "--payment", PAYMENT, "--reason", "seen")["item_id"]
    assert command("bob", "review", "verdict", other, "unsure")["verdict"] == "unsure"  # it takes no label back
    refused = command("bob", "review", "verdict", other, "genuine", "--correct", "--reason", "own card")
    assert "request 1 waits for a second person" in refused and label(decided) is True
    assert command("ann", "approvals", "show", "1")["before"] == {PAYMENT: "fraud"}
    command("ann", "approvals", "approve", "1", "--reason", "I was wrong")
    assert label(decided) is False


def test_who_agrees_with_a_verdict_needs_nobody(decided: LocalStore, command: Command) -> None:
    again = command("bob", "review", "verdict", ITEM, "fraud", "--correct", "--reason", "so it is")
    assert again["kind"] == "corrected" and label(decided) is True


def test_a_correction_of_a_verdict_that_has_changed_since_is_refused(decided: LocalStore, command: Command) -> None:
    command("bob", "review", "verdict", ITEM, "genuine", "--correct", "--reason", "own card")
    command("eve", "review", "withdraw", ITEM, "--reason", "unclear")
    command("bob", "approvals", "approve", "2", "--reason", "yes")
    refused = command("eve", "approvals", "approve", "1", "--reason", "yes")
    assert f"request 1 was asked when {PAYMENT} was fraud, and now it is missing" in refused
    assert label(decided) is None


def test_a_correction_that_was_killed_after_its_event_is_completed_once(decided: LocalStore, command: Command) -> None:
    from fraudlake_desk import effects

    command("bob", "review", "verdict", ITEM, "genuine", "--correct", "--reason", "own card")
    request = log.decide(decided, 1, "approved", "ann", "yes")
    effects.find("correction").carry_out(decided, request)
    assert command("bob", "approvals", "carry-out", "1")["status"] == "carried out"
    assert len(event_log.read_events(decided)) == 2 and label(decided) is False


def test_of_several_items_only_those_that_were_decided_wait(decided: LocalStore, command: Command) -> None:
    refused = command("bob", "review", "verdict", ITEM, "alert1", "genuine", "--correct", "--reason", "x")
    assert "2 of 2 items not done" in refused  # the other one has no verdict to correct
    assert [request.event.subject for request in log.read(decided).values()] == [f"corrected verdict on {ITEM}"]


def event(number: int, kind: Any, verdict: Any, of: tuple[str, ...], fraud: tuple[str, ...] = ()) -> Event:
    made = Event(f"e{number}", "i", kind, "ann", NOON, "1", "account", "1", verdict)
    return Event(**{**vars(made), "transaction_ids": of, "fraud_ids": fraud, "number": number})


@pytest.mark.parametrize(
    ("events", "new", "is_overturned"),
    [
        ([], event(1, "verdict", "fraud", ("a",), ("a",)), False),
        ([event(1, "verdict", "unsure", ("a",))], event(2, "corrected", "fraud", ("a",), ("a",)), False),
        ([event(1, "verdict", "fraud", ("a",), ("a",))], event(2, "corrected", "unsure", ("a",)), True),
        ([event(1, "verdict", "fraud", ("a",), ("a",))], event(2, "verdict", "genuine", ("a", "b")), True),
        ([event(1, "verdict", "fraud", ("a",), ("a",))], event(2, "verdict", "fraud", ("a", "b"), ("a",)), False),
        ([event(1, "verdict", "fraud", ("a",), ("a",)), event(2, "withdrawn", None, ("a",))],
         event(3, "verdict", "genuine", ("a",)), False),
        # Of two cases that were merged, the first was fraud: the latest verdict alone does not show it.
        ([event(1, "verdict", "fraud", ("a",), ("a",)), event(2, "verdict", "genuine", ("b",))],
         event(3, "corrected", "genuine", ("a", "b")), True),
        ([event(1, "verdict", "fraud", ("a",), ("a",))], event(2, "noted", None, ("a",)), False),
    ],
)  # fmt: skip
def test_what_overturns_a_verdict(events: list[Event], new: Event, is_overturned: bool) -> None:
    assert Correction.of(events, new).overturns is is_overturned


def test_an_event_comes_back_from_the_request_that_holds_it(root: Path) -> None:
    new = event(3, "corrected", "fraud", ("a", "b"), ("a",))
    content = {"item_id": "i", "kind": "corrected", "analyst": "ann", "account_id": "1", "entity": "account",
               "entity_key": "1", "verdict": "fraud", "transaction_ids": ["a", "b"], "fraud_ids": ["a"]}  # fmt: skip
    assert corrections.event_of(content, event_id="e3", at=NOON, number=3) == new


def test_one_key_corrects_at_once(tmp_path: Path, fraudlake_here: Any) -> None:
    other = small_lake.make(tmp_path / "other")
    for arguments in (("fraud",), ("genuine", "--correct", "--reason", "x", "--analyst", "whoever")):
        assert fraudlake_here("--lake", str(other), "review", "verdict", ITEM, *arguments).returncode == 0
    assert label(LocalStore(Settings(lake=other))) is False
