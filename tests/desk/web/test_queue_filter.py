"""The filter of the queue: conditions and order are in the address, and everything that follows keeps them."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from fraudlake.lake.local_store import LocalStore
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE
from fraudlake_desk.web import queue_page
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Browser, Open
from tests.desk.web.test_decisions import events

pytestmark = pytest.mark.slow

QUEUE = small_lake.queue()
ITEMS = [row["item_id"] for row in QUEUE]


def items(page: str) -> list[str]:
    """The items that a page of the queue lists, in their order."""
    return re.findall(r'data-href="/items/([^?"]*)', page)


def listed(browser: Browser, **query: str) -> list[str]:
    answer = browser.get(f"/?{urlencode(query)}")
    assert answer.status_code == 200, answer.text
    return items(answer.text)


def link(page: str, text: str) -> str:
    (address,) = re.findall(rf'<a[^>]*href="([^"]*)"[^>]*>{text}', page)
    return html.unescape(address)


@pytest.fixture
def worked(browse: Open, root: Path) -> Browser:
    """A queue with an item of a terminal, one that anna holds, one that bert does, and what they decided."""
    raised = {**small_lake.case(small_lake.alerts()[0]), "case_id": "t1", "alert_ids": ["t1"], "rules": ["busy"]}
    key = {"entity": "terminal", "entity_key": "T1"}
    small_lake.write(root, GOLD_CASES, [{**raised, **key}])
    row = {**QUEUE[0], "rank": 10, "item_id": "t1", "case_id": "t1", "amount_at_risk": 50.0, "reasons": "busy"}
    small_lake.write(root, GOLD_REVIEW_QUEUE, [{**row, **key}])
    anna, bert = browse("anna"), browse("bert")
    anna.submit("/items/alert6", "/items/alert6/take")
    bert.submit("/items/alert5", "/items/alert5/take")
    anna.submit("/items/alert4", "/items/alert4/verdict", verdict="genuine")
    bert.submit("/items/alert3", "/items/alert3/verdict", verdict="fraud")
    bert.submit("/items/drawn8", "/items/drawn8/verdict", verdict="fraud", fraud=["8-4"])
    return anna


def test_each_condition_leaves_the_items_that_fulfil_it(worked: Browser) -> None:
    expected = {
        ("state", "open"): ["alert9", "alert2", "alert1", "alert0", "t1"],
        ("state", "yours"): ["alert6"],
        ("state", "held"): ["alert6", "alert5"],
        ("state", "decided"): ["alert4", "alert3", "drawn8"],
        ("state", "second look"): ["drawn8"],
        ("rule", "busy"): ["t1"],
        ("entity", "terminal"): ["t1"],
        ("person", "bert"): ["alert5", "alert3", "drawn8"],
        ("person", "anna"): ["alert6", "alert4"],
        ("amount_from", "1200"): ["alert9", "alert6", "drawn8"],
        ("amount_to", "7e2"): ["alert1", "alert0", "t1"],
        ("amount_to", ""): [*ITEMS, "t1"],
    }
    assert {pair: listed(worked, **dict([pair])) for pair in expected} == expected
    assert listed(worked, state="decided", person="bert", amount_to="1000", rule="small_then_large") == ["alert3"]


def test_what_was_set_aside_is_found_by_who_is_to_decide_and_by_its_state(browse: Open) -> None:
    anna, tomorrow = browse("anna"), datetime.now(UTC).date() + timedelta(days=1)
    for act, item, said in (
        ("assign", "alert6", {"assignee": "bert"}),
        ("wait", "alert5", {"until": f"{tomorrow}"}),
        ("escalate", "alert4", {}),
    ):
        page = f"/items/{item}"
        anna.post(f"{page}/{act}", data={**anna.form(page, f"{page}/verdict"), "reason": "a customer of his", **said})
    assert listed(anna, person="bert") == ["alert6"]
    assert listed(anna, state="waiting") == ["alert5"]
    assert listed(anna, state="for a lead") == ["alert4"]
    anna.submit("/items/alert4", "/items/alert4/verdict", verdict="genuine")
    assert listed(anna, state="for a lead") == []


@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("amount", lambda row: row["amount_at_risk"]),
        ("-amount", lambda row: -row["amount_at_risk"]),
        ("-rank", lambda row: -row["rank"]),
        ("key", lambda row: row["entity_key"]),
        ("reasons", lambda row: row["reasons"]),
        ("probability", lambda row: "probability" not in row),
        ("-probability", lambda row: "probability" not in row),
    ],
)
def test_each_column_is_an_order(browse: Open, sort: str, key: object) -> None:
    assert listed(browse(), sort=sort) == [row["item_id"] for row in sorted(QUEUE, key=key)]  # type: ignore[call-overload]


def test_a_column_is_sorted_by_its_link_and_then_in_reverse(browse: Open) -> None:
    browser = browse()
    page = browser.get("/?amount_from=900").text
    for order in ("-amount", "amount"):
        page = browser.get(link(page, "At risk")).text
        assert re.findall(r'aria-sort="(\w+)"', page) == ["descending" if order == "-amount" else "ascending"]
        expected = sorted((row for row in QUEUE if row["amount_at_risk"] >= 900), key=lambda row: row["amount_at_risk"])
        assert items(page) == [row["item_id"] for row in (expected if order == "amount" else expected[::-1])]


def test_states_are_sorted_by_what_is_to_be_done(worked: Browser) -> None:
    assert listed(worked, sort="state")[-5:] == ["alert6", "alert5", "alert3", "drawn8", "alert4"]


def test_next_takes_the_next_item_of_the_filtered_and_sorted_queue(browse: Open, store: LocalStore) -> None:
    browser, query = browse(), {"sort": "amount", "amount_from": "900", "amount_to": "1300"}
    page, expected = f"/?{urlencode(query)}", listed(browser, **query)
    assert expected == ["alert3", "alert4", "alert5", "alert6"]
    for item in expected:
        page = browser.post("/next", data=browser.form(page, "/next"), follow_redirects=False).headers["location"]
        split = urlsplit(page)
        assert split.path == f"/items/{item}"
        assert parse_qs(split.query) == {name: [value] for name, value in ({"day": "2026-03-07"} | query).items()}
        page = str(browser.post(f"{split.path}/verdict", data={
            **browser.form(page, f"{split.path}/verdict"), "verdict": "genuine",
        }).url)  # fmt: skip
    answer = browser.post("/next", data=browser.form(page, "/next"))
    assert answer.status_code == 409
    assert "nothing is left to take with at risk from 900, at risk to 1300: 4 of 4 are decided" in answer.text
    assert [event["item_id"] for event in events(store) if event["kind"] == "verdict"] == expected
    assert items(browser.get(link(browser.get(page).text, "Queue <kbd>")).text) == expected


def test_next_among_the_open_ones_goes_on_after_what_was_decided(browse: Open, store: LocalStore) -> None:
    browser, page = browse(), "/?state=open"
    for item in ITEMS[:3]:
        page = browser.post("/next", data=browser.form(page, "/next"), follow_redirects=False).headers["location"]
        assert page == f"/items/{item}?day=2026-03-07&state=open"
    assert [event["item_id"] for event in events(store) if event["kind"] == "released"] == ITEMS[:2]


def test_another_span_of_days_keeps_the_filter(browse: Open) -> None:
    browser = browse()
    page = browser.get("/items/alert2?day=2026-03-07&rule=a%26b&sort=-amount").text
    assert link(page, "30 days before") == "?days=30&day=2026-03-07&rule=a%26b&sort=-amount"


def test_next_of_second_looks_opens_what_somebody_else_decided(browse: Open) -> None:
    anna, bert = browse("anna"), browse("bert")
    bert.submit("/items/drawn8", "/items/drawn8/verdict", verdict="fraud", fraud=["8-4"])
    refused = bert.post("/next", data=bert.form("/?state=second+look", "/next"))
    assert refused.status_code == 409 and "nothing is left to take with state second look" in refused.text
    page = anna.post("/next", data=anna.form("/?state=second+look", "/next"), follow_redirects=False).headers[
        "location"
    ]
    assert page.startswith("/items/drawn8?")
    anna.submit(page, "/items/drawn8/verdict", verdict="fraud")
    assert listed(anna, state="second look") == []


def test_a_long_queue_shows_its_first_items_and_how_many_there_are(
    browse: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_page, "_SHOWN", 3)
    anna = browse("anna")
    page = anna.get("/?sort=amount").text
    cheapest = sorted(QUEUE, key=lambda row: row["amount_at_risk"])[:3]
    assert items(page) == [row["item_id"] for row in cheapest]
    assert f"The first 3 of {len(QUEUE)} items: filter them" in text_of(page)
    filtered = text_of(anna.get("/?amount_from=1000").text)
    many = sum(row["amount_at_risk"] >= 1000 for row in QUEUE)
    assert f"{many} of {len(QUEUE)} items have: " in filtered and f"The first 3 of {many} items" in filtered
    assert "The first" not in text_of(anna.get("/?amount_from=1200").text)


def test_a_filter_that_nothing_fulfils_is_named_with_a_link_that_removes_each_condition(browse: Open) -> None:
    browser = browse()
    page = browser.get("/?state=decided&amount_from=900&sort=-amount").text
    assert "0 of 9 items have: state decided ( remove ), at risk from 900 ( remove )." in text_of(page)
    assert "No item of this queue has state decided, at risk from 900." in text_of(page)
    removals = [html.unescape(one) for one in re.findall(r'\(<a href="([^"]*)">remove', page)]
    assert removals == [
        "/?day=2026-03-07&amount_from=900&sort=-amount",
        "/?day=2026-03-07&state=decided&sort=-amount",
    ]
    assert link(page, "Remove the filter") == "/?day=2026-03-07&sort=-amount"
    assert items(browser.get(removals[0]).text)[0] == "alert9"


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("amount_from=²", "at risk from: give a number, not '²'"),
        ("amount_to=nan", "at risk to: give a number, not 'nan'"),
        ("amount_to=1e999", "at risk to: give a number"),
        (
            "state=done",
            "state: there is no 'done', but open, late, yours, held, waiting, for a lead, decided, second look",
        ),
        ("sort=--rank", "sort: there is no '--rank'"),
    ],
)
def test_a_value_that_is_none_is_a_line(browse: Open, store: LocalStore, query: str, line: str) -> None:
    browser = browse()
    for page in (f"/?{query}", f"/items/alert2?{query}"):
        answer = browser.get(page)
        assert answer.status_code == 409 and line in text_of(answer.text)
    form = browser.form("/items/alert2", "/items/alert2/verdict") | {"verdict": "genuine"}
    name, _, value = query.partition("=")
    for action in ("/next", "/items/alert2/verdict"):
        assert browser.post(action, data={**form, "day": "2026-03-07", name: value}).status_code == 409
    assert events(store) == []


def test_hostile_conditions_are_texts(browse: Open) -> None:
    query = urlencode(dict.fromkeys(("rule", "entity", "person"), small_lake.SENTENCE))
    page = browse().get(f"/?{query}").text
    assert "<script>alert" not in page and f"rule {small_lake.SENTENCE}" in text_of(page)


def test_a_state_that_is_searched_shows_its_items(browse: Open) -> None:
    answer = browse().get("/find?name=Decided&day=2026-03-07", follow_redirects=False)
    assert answer.headers["location"] == "/?day=2026-03-07&state=decided"


def test_a_decided_row_has_the_word(worked: Browser) -> None:
    """The field of the page shows the rows that have a text."""
    rows = re.findall(r"<tr data-href.*?</tr>", worked.get("/").text, re.DOTALL)
    assert [text_of(row).split()[0] for row in rows if "decided" in text_of(row)] == ["4", "5", "9"]
