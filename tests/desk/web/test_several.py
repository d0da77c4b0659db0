"""Several items at once: each is allowed or refused on its own, and a page says what happened to each."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from fraudlake.lake import chain
from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.store import Store
from fraudlake.review import event_log, item_state, items
from fraudlake.review.event import Event
from fraudlake.review.item import Item
from fraudlake.review.window import Window
from fraudlake.tables import SILVER_REVIEW_EVENTS, SILVER_VERDICTS, Table
from fraudlake_desk.review import actions, matters, several, verdicts
from fraudlake_desk.web.role import Role
from tests.desk import small_lake
from tests.desk.web.conftest import Browser, Open

pytestmark = pytest.mark.slow

QUEUE = "/?day=2026-03-07"


def act(browser: Browser, word: str, *names: str, **fields: str) -> list[tuple[str, str]]:
    """Send the form of the queue, and return of each item whether it is done, and what the page says."""
    return outcomes(browser.submit(QUEUE, "/several", act=word, item=[*names], **fields))


def outcomes(page: str) -> list[tuple[str, str]]:
    rows = re.findall(r'<span class="chip \w+">(done|not done)</span></td><td>(.*?)</td>', page)
    return [(done, html.unescape(text)) for done, text in rows]


def written(store: Store) -> list[tuple[str, str, str | None]]:
    return [(event.item_id, event.kind, event.verdict) for event in event_log.read_events(store)]


def labels(store: Store) -> dict[str, bool]:
    return verdicts.latest(store, Window(small_lake.DAY, small_lake.DAY))


def commits(store: LocalStore, table: Table) -> int:
    """The commits to a table since it was made."""
    return DeltaTable(store.root / "tables" / table.name).version()


def test_the_page_says_of_each_item_what_happened_and_never_that_all_is_done(browse: Open, store: LocalStore) -> None:
    browse("bert").submit("/items/alert2", "/items/alert2/take")
    browse("bert").submit("/items/alert3", "/items/alert3/verdict", verdict="genuine")
    page = browse().submit(QUEUE, "/several", act="take", item=["alert1", "alert2", "alert3", "drawn8", "gone"])
    assert "<h1>2 of 5 items done</h1>" in page
    until = r"yours until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    (one, two, three, four, five) = outcomes(page)
    assert one[0] == four[0] == "done" and re.fullmatch(until, one[1]) and re.fullmatch(until, four[1])
    assert two[0] == "not done" and two[1].startswith("bert holds alert2 until")
    assert three[0] == "not done" and three[1].startswith("bert decided on alert3 at")
    assert five == ("not done", "it is not in this queue any more: it was forgotten, replaced or merged")
    assert [name for name, *_ in written(store)[2:]] == ["alert1", "drawn8"]
    assert chain.verify(event_log.read_events(store)).faults == []


def test_a_case_that_was_merged_is_refused_and_the_whole_one_is_decided_on_with_its_payments(
    browse: Open, store: LocalStore
) -> None:
    matters.merge(store, "alert1", "alert2", "anna", "the same device", "m" * 32)
    assert act(browse(), "fraud", "alert1", "alert2") == [
        ("not done", "it is not in this queue any more: it was forgotten, replaced or merged"),
        ("done", "decided: fraud, 2 payments"),
    ]
    assert labels(store) == {"1-4": True, "2-4": True}


def test_a_form_that_is_sent_again_writes_nothing_and_says_the_same(browse: Open, store: LocalStore) -> None:
    browser = browse()
    sent = browser.form(QUEUE, "/several") | {"item": ["alert1", "drawn8"], "act": "genuine", "reason": "usual"}
    first = browser.post("/several", data=sent)
    again = browser.post("/several", data=sent)
    assert outcomes(first.text) == outcomes(again.text) == [("done", "decided: genuine")] * 2
    assert written(store) == [("alert1", "verdict", "genuine"), ("drawn8", "verdict", "genuine")]
    other = browser.post("/several", data={**sent, "act": "note", "note": "another act of the same form"})
    assert outcomes(other.text) == [("done", "noted")] * 2 and len(written(store)) == 4


def test_verdicts_on_several_items_are_labels_and_fraud_is_all_that_raised_a_case(
    browse: Open, store: LocalStore
) -> None:
    browser = browse()
    assert act(browser, "fraud", "alert1", "alert2", "drawn8", reason="stolen card") == [
        ("done", "decided: fraud"),
        ("done", "decided: fraud"),
        ("not done", "drawn8 was drawn at random: mark the payments that are fraud on its own page"),
    ]
    assert act(browser, "genuine", "drawn8", "alert3") == [("done", "decided: genuine")] * 2
    assert act(browser, "unsure", "alert4") == [("done", "decided: unsure")]
    assert labels(store) == {"1-4": True, "2-4": True, "8-3": False, "8-4": False, "3-4": False}
    amounts = {event.item_id: event.fraud_amount for event in event_log.read_events(store) if event.fraud_ids}
    assert amounts == {"alert1": 700.0, "alert2": 800.0}
    assert [commits(store, table) for table in (SILVER_REVIEW_EVENTS, SILVER_VERDICTS)] == [3, 2]


def test_items_are_set_aside_with_what_the_form_asks_for(browse: Open, store: LocalStore) -> None:
    browser, day = browse(), (datetime.now(UTC) + timedelta(days=3)).date()
    assert act(browser, "wait", "alert1", until=str(day), reason="the bank is asked") == [
        ("done", f"waits until {day} 00:00:00 UTC")
    ]
    assert act(browser, "wait", "alert2", until=str(day)) == [
        ("not done", "give a reason why alert2 is set aside: nothing was written")
    ]
    assert act(browser, "assign", "alert2", assignee="bert", reason="his") == [("done", "for bert")]
    assert act(browser, "escalate", "alert3", reason="above my limit") == [("done", "for a lead")]
    assert act(browser, "note", "alert4", note="called") == [("done", "noted")]
    assert act(browser, "release", "alert4") == [("not done", "nobody holds alert4")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"act": "take"}, "no item is chosen"),
        (
            {"act": "take", "item": [f"i{number}" for number in range(101)]},
            "101 items are chosen, and at most 100 are allowed at once",
        ),
        ({"act": "dance", "item": ["alert1"]}, "does not say what to do"),
        ({"act": "take", "item": ["alert1"], "day": ""}, "name the day of the queue"),
    ],
)
def test_a_form_that_cannot_be_is_refused_in_a_line(
    browse: Open, store: LocalStore, given: dict[str, Any], message: str
) -> None:
    browser = browse()
    answer = browser.post("/several", data={**browser.form(QUEUE, "/several"), **given})
    assert answer.status_code == 409 and message in answer.text and written(store) == []


def test_a_reader_has_no_boxes_and_no_form(browse: Open, store: LocalStore) -> None:
    browser = browse("rita", Role.READER)
    page = browser.get(QUEUE).text
    assert 'name="item"' not in page and "/several" not in page
    token = re.findall('name="form-token" content="([^"]*)"', page)[0]
    answer = browser.post("/several", data={"form": token, "event_id": "e" * 32, "item": "alert1", "act": "take"})
    assert answer.status_code == 403 and written(store) == []


def test_if_the_process_ends_before_the_labels_the_events_are_there_and_a_repetition_adds_the_labels(
    browse: Open, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    browser = browse()
    sent = browser.form(QUEUE, "/several") | {"item": ["alert1", "alert2"], "act": "genuine"}
    with monkeypatch.context() as patch:
        patch.setattr("fraudlake_desk.review.verdicts.follow", killed)
        assert browser.post("/several", data=sent).status_code == 500
    assert len(written(store)) == 2 and labels(store) == {}
    browser.post("/several", data=sent)
    assert len(written(store)) == 2 and labels(store) == {"1-4": False, "2-4": False}


def test_two_names_of_one_item_are_one_event(store: LocalStore) -> None:
    case = items.require(store, "alert1")

    def note(item: Item, before: item_state.State, id_: str) -> Event:
        return actions.set_aside(item, before, "ann", "noted", id_, note="seen")

    outcomes = several.carry_out(store, {"alert1": case, "the same": case}, "f", ["note"], note)
    assert outcomes["alert1"] == outcomes["the same"] and len(written(store)) == 1
