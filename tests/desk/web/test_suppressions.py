"""A lead suppresses a rule on the page of a case, and ends that on the page of the rules, with forms alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fraudlake import tables
from fraudlake.detection import list_entries
from fraudlake.detection.list_entries import Entry
from fraudlake_desk.web.role import Role
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Open, OpenStore

CASE = "/items/alert2"
SUPPRESS = f"{CASE}/suppress"
UNTIL = str((datetime.now(UTC) + timedelta(days=30)).date())
HOSTILE = "<script>alert('why')</script>"


def given(**fields: str) -> dict[str, str]:
    return {"rule": "small_then_large", "until": UNTIL, "reason": "travels", **fields}


def test_a_lead_suppresses_a_rule_for_the_key_of_a_case_and_ends_that(browse: Open, open_store: OpenStore) -> None:
    browser = browse("lena", Role.LEAD)
    page = browser.submit(CASE, SUPPRESS, **given())
    (entry,) = list_entries.read(open_store())
    assert (entry.rule, entry.entity, entry.entity_key) == ("small_then_large", "account", "A2")
    assert (entry.author, entry.reason, str(entry.ends_at.date())) == ("lena", "travels", UNTIL)
    assert f"small_then_large raises no alerts for it from {entry.starts_at:%Y-%m-%d %H:%M:%S} UTC on." in page
    assert (
        f"small_then_large suppressed from {entry.starts_at:%Y-%m-%d %H:%M:%S} to {UNTIL} 00:00:00 UTC lena · travels"
        in text_of(page)
    )

    end = f"/entries/{entry.entry_id}/end"
    assert "account A2" in text_of(browser.get("/rules").text)
    page = browser.submit("/rules", end, reason="it was fraud")
    (ended,) = list_entries.read(open_store())
    assert (ended.ended_by, ended.ended_because, ended.ends_at < entry.ends_at) == ("lena", "it was fraud", True)
    assert "small_then_large alerts for A2 again from" in page
    assert "ended by lena · it was fraud" in text_of(page)
    assert end not in page


def test_a_form_that_is_sent_twice_adds_one_entry(browse: Open, open_store: OpenStore) -> None:
    browser = browse("lena", Role.LEAD)
    fields = browser.form(CASE, SUPPRESS) | given()
    assert [browser.post(SUPPRESS, data=fields).status_code for _ in range(2)] == [200, 200]
    assert len(list_entries.read(open_store())) == 1


@pytest.mark.parametrize("role", [Role.READER, Role.ANALYST])
def test_others_see_entries_and_cannot_add_or_end_them(browse: Open, open_store: OpenStore, role: Role) -> None:
    browse("lena", Role.LEAD).submit(CASE, SUPPRESS, **given())
    (entry,) = list_entries.read(open_store())
    browser = browse("anna", role)
    page = browser.get(CASE).text
    assert "travels" in page and SUPPRESS not in page
    rules, end = browser.get("/rules").text, f"/entries/{entry.entry_id}/end"
    assert "travels" in rules and end not in rules
    token = page.partition('name="form-token" content="')[2].partition('"')[0]
    for action, fields in ((SUPPRESS, given(event_id="0" * 32)), (end, {"reason": "mine"})):
        assert browser.post(action, data={"form": token, **fields}).status_code == 403
    assert list_entries.read(open_store()) == [entry]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"until": "2020-01-01"}, "choose a later day; nothing was written"),
        ({"until": ""}, "give the day until which it is on the list"),
        ({"reason": " "}, "give a reason"),
        ({"rule": HOSTILE}, "there is no rule"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    browse: Open, open_store: OpenStore, fields: dict[str, str], message: str
) -> None:
    browser = browse("lena", Role.LEAD)
    answer = browser.post(SUPPRESS, data=browser.form(CASE, SUPPRESS) | given(**fields))
    assert answer.status_code == 409 and message in answer.text and "<script>alert" not in answer.text
    assert list_entries.read(open_store()) == []


def test_the_rules_page_counts_what_entries_have_suppressed(browse: Open, root: Path) -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    over = Entry(
        "e1",
        "suppressed",
        "small_then_large",
        "account",
        HOSTILE,
        HOSTILE,
        start,
        start + timedelta(days=9),
        HOSTILE,
        "ann",
        start,
    )
    small_lake.write(root, tables.SILVER_LIST_ENTRIES, [over.added])
    held = [{**small_lake.alerts()[0], "alert_id": f"h{number}", "entry_id": "e1"} for number in range(3)]
    small_lake.write(root, tables.SILVER_SUPPRESSED_ALERTS, held)
    page = browse("anna").get("/rules").text
    assert "<script>alert" not in page
    shown = text_of(page)
    assert "2026-03-01 00:00:00 2026-03-10 00:00:00 3 over ann" in shown
    assert "on the last day 8 and 3 suppressed 8 unknown" in shown


def test_a_backtest_of_the_desk_says_how_many_are_suppressed(browse: Open, root: Path) -> None:
    noon = small_lake.NOON
    entry = Entry(
        "e1", "suppressed", "small_then_large", "account", "A1", "A1", noon, noon + timedelta(hours=1), "", "ann", noon
    )
    small_lake.write(root, tables.SILVER_LIST_ENTRIES, [entry.added])
    shown = text_of(browse("anna").get("/rules/small_then_large/backtest").text)
    assert "Alerts 9 and 1 suppressed" in shown
