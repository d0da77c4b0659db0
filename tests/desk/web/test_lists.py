"""A lead adds the key of a case to a list on its page, looks at the list, and ends the entry, with forms alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fraudlake.detection import list_entries
from fraudlake_desk.web.role import Role
from tests.desk.page import text_of
from tests.desk.web.conftest import Open, OpenStore

CASE = "/items/alert2"
ADD = f"{CASE}/list"
UNTIL = str((datetime.now(UTC) + timedelta(days=30)).date())
HOSTILE = "<script>alert('why')</script>"


def given(**fields: str) -> dict[str, str]:
    return {"list": "partners", "until": UNTIL, "reason": "travels", **fields}


def test_a_lead_adds_the_key_of_a_case_to_a_list_and_ends_that(browse: Open, open_store: OpenStore) -> None:
    browser = browse("lena", Role.LEAD)
    page = browser.submit(CASE, ADD, **given())
    (entry,) = list_entries.read(open_store())
    assert (entry.list, entry.rule, entry.entity, entry.entity_key) == ("partners", None, "account", "A2")
    assert (entry.author, entry.reason, str(entry.ends_at.date())) == ("lena", "travels", UNTIL)
    begins = f"{entry.starts_at:%Y-%m-%d %H:%M:%S}"
    assert f"It is on partners from {begins} UTC on." in page
    assert f"partners from {begins} to {UNTIL} 00:00:00 UTC lena · travels" in text_of(page)
    assert '<option value="partners">' in page

    assert "partners account 1 0 0 no rule in use names it" in text_of(browser.get("/rules").text)
    assert "account A2" in text_of(browser.get("/lists/partners").text)
    page = browser.submit("/lists/partners", f"/entries/{entry.entry_id}/end", reason="it was fraud")
    (ended,) = list_entries.read(open_store())
    assert (ended.ended_by, ended.ended_because, ended.ends_at < entry.ends_at) == ("lena", "it was fraud", True)
    assert "A2 is not on partners any more from" in page
    assert "ended by lena · it was fraud" in text_of(page)


def test_others_see_lists_and_cannot_change_them(browse: Open, open_store: OpenStore) -> None:
    browse("lena", Role.LEAD).submit(CASE, ADD, **given())
    (entry,) = list_entries.read(open_store())
    browser = browse("anna", Role.ANALYST)
    page = browser.get(CASE).text
    assert "travels" in page and ADD not in page
    end = f"/entries/{entry.entry_id}/end"
    assert end not in browser.get("/lists/partners").text
    token = page.partition('name="form-token" content="')[2].partition('"')[0]
    for action, fields in ((ADD, given(event_id="0" * 32)), (end, {"reason": "mine"})):
        assert browser.post(action, data={"form": token, **fields}).status_code == 403
    assert list_entries.read(open_store()) == [entry]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"until": ""}, "give the day until which it is on the list"),
        ({"reason": " "}, "give a reason"),
        ({"list": HOSTILE}, "cannot be the name of a list"),
        ({"list": "suppressed"}, "cannot be the name of a list"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    browse: Open, open_store: OpenStore, fields: dict[str, str], message: str
) -> None:
    browser = browse("lena", Role.LEAD)
    answer = browser.post(ADD, data=browser.form(CASE, ADD) | given(**fields))
    assert answer.status_code == 409 and message in answer.text and "<script>alert" not in answer.text
    assert list_entries.read(open_store()) == []


def test_a_list_that_is_not_there_is_said_to_be_missing(browse: Open) -> None:
    answer = browse("anna").get("/lists/nobody")
    assert answer.status_code == 404 and "there is no list nobody" in answer.text
