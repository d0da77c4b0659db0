"""Matter forms: cases that are opened by hand, merged and separated on the pages, without scripts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fraudlake.lake.store import Store
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk.web.role import Role
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Browser, Open, OpenStore
from tests.desk.web.test_decisions import learned

pytestmark = pytest.mark.slow

ACCOUNT = "/accounts/A8"


def kinds(store: Store) -> list[tuple[str, str]]:
    rows = store.query(f"SELECT kind, analyst FROM {SILVER_REVIEW_EVENTS.name} ORDER BY number", SILVER_REVIEW_EVENTS)
    return [(row["kind"], row["analyst"]) for row in rows.to_pylist()]


def opened(browser: Browser, *payments: str, page: str = ACCOUNT, reason: str = "she called") -> str:
    """Open a case on an account's page; return the address of the case's."""
    fields = browser.form(page, "/open")
    answer = browser.post("/open", data={**fields, "payment": list(payments), "reason": reason})
    assert answer.status_code == 200, answer.text
    return answer.url.path


def test_a_case_is_opened_on_the_page_of_an_account(browse: Open, open_store: OpenStore, root: Path) -> None:
    browser = browse()
    page = browser.get(ACCOUNT).text
    assert page.count('form="open" name="payment"') == 5

    case = opened(browser, "8-3", "8-1", reason=small_lake.SENTENCE)

    page = browser.get(case).text
    assert "<script>" not in page and "opened by hand by anna" in text_of(page)
    assert f"Id {case.rpartition('/')[2]}" in text_of(page)
    assert browser.form(case, f"{case}/verdict")["fraud"] == ["8-1", "8-3"]
    assert "by hand" in text_of(browser.get("/").text) and "opened by hand by anna" in text_of(
        browser.get(ACCOUNT).text
    )
    assert browser.get("/find?name=8-1").url.path == case
    assert browser.get(f"{case}/dossier").status_code == 200
    browser.submit(case, f"{case}/take")
    browser.submit(case, f"{case}/verdict", verdict="fraud", fraud=["8-3"])
    assert learned(root) == {"8-1": False, "8-3": True}
    assert kinds(open_store()) == [("opened", "anna"), ("taken", "anna"), ("verdict", "anna")]


def test_what_cannot_be_opened_is_said(browse: Open, open_store: OpenStore) -> None:
    browser = browse()
    fields = browser.form(ACCOUNT, "/open")
    for given, message in (
        ({"reason": "r"}, "mark the payments"),
        ({"payment": "8-3", "reason": ""}, "give a reason"),
        ({"payment": "2-3", "reason": "r"}, "account A8 has no payment 2-3"),
    ):
        answer = browser.post("/open", data={**fields, **given})
        assert answer.status_code == 409 and message in answer.text
    case = opened(browser, "8-3")
    again = browser.post("/open", data={**browser.form(ACCOUNT, "/open"), "payment": "8-3", "reason": "r"})
    assert again.status_code == 409 and f"case {case.removeprefix('/items/')}, which is open, has 8-3" in again.text
    reader = browse("rita", Role.READER)
    assert 'action="/open"' not in reader.get(ACCOUNT).text
    assert len(kinds(open_store())) == 1


def test_the_next_item_is_a_case_by_hand_after_all_others(browse: Open) -> None:
    browser = browse()
    case = opened(browser, "7-3", page="/accounts/A7")
    fields = browser.form("/?day=2026-03-07", "/next")
    seen = [browser.post("/next", data=fields).url.path]
    for _ in range(9):
        page = f"{seen[-1]}?day=2026-03-07"
        browser.submit(page, f"{seen[-1]}/verdict", verdict="unsure")
        seen.append(browser.post("/next", data=browser.form(page, "/next")).url.path)
    assert seen[-1] == case


def test_two_cases_are_merged_decided_on_and_separated(browse: Open, open_store: OpenStore, root: Path) -> None:
    browser, part, whole = browse(), "/items/alert2", "/items/alert4"
    merge = f"{part}/merge"

    form = {**browser.form(f"{part}?day=2026-03-07", merge), "other": "alert4", "reason": "one device"}
    assert "The two are one case now." in text_of(browser.post(merge, data=form).text)

    sent = browser.post(merge, data=form)
    assert sent.status_code == 200 and len(kinds(open_store())) == 1  # a form that is sent again

    answer = browser.get(f"{part}?day=2026-03-07")
    assert answer.url.path == whole
    text = text_of(answer.text)
    assert "alert2 is part of this case." in text and "anna merged alert2 into alert4 · one device" in text
    assert "A2: a small payment" in text and "A4: a small payment" in text  # the evidence of both
    assert browser.form(whole, f"{whole}/verdict")["fraud"] == ["2-4", "4-4"]
    queue = text_of(browser.get("/").text)
    assert "part of alert4" in queue
    document = browser.get(f"{part}/dossier").text
    assert "2-4" in document and "4-4" in document

    browser.submit(whole, f"{whole}/verdict", verdict="fraud", fraud=["2-4"])
    assert learned(root) == {"2-4": True, "4-4": False}
    stale = browser.post(f"{part}/verdict", data={**browser.form(whole, f"{whole}/verdict"), "verdict": "genuine"})
    assert stale.status_code == 409 and "this is part of case alert4 now" in stale.text
    form = {**browser.form(whole, f"{part}/separate"), "reason": "another"}
    answer = browser.post(f"{part}/separate", data=form)
    assert answer.status_code == 409 and "withdraw it first" in answer.text
    browser.submit(whole, f"{whole}/withdraw")
    page = browser.submit(whole, f"{part}/separate", reason="another")
    assert "It is a case of its own again." in text_of(page) and "alert2" in page
    assert browser.get(part).url.path == part


def test_a_verdict_is_about_the_parts_that_its_page_has_shown(browse: Open, open_store: OpenStore) -> None:
    browser, whole = browse(), "/items/alert4"
    before = browser.form(whole, f"{whole}/verdict")
    browser.submit("/items/alert2", "/items/alert2/merge", other="alert4", reason="one device")
    answer = browser.post(f"{whole}/verdict", data={**before, "verdict": "fraud"})
    assert answer.status_code == 409 and "merged or separated since this page was made" in answer.text
    assert [kind for kind, _ in kinds(open_store())] == ["merged"]


def test_open_cases_that_share_an_account_or_payment_are_proposed(browse: Open, root: Path) -> None:
    small_lake.add_terminal_case(root)
    browser = browse()
    case = opened(browser, "0-1", page="/accounts/A0")

    def proposed(page: str) -> set[str]:
        choice = re.search('<select id="into".*?</select>', browser.get(page).text, re.DOTALL)
        return set(re.findall('value="([^"]+)"', choice[0])) if choice else set()

    by_hand = case.removeprefix("/items/")
    assert proposed("/items/alert0") == {"busy 0-4", by_hand}
    assert proposed(case) == {"alert0"}
    assert proposed("/items/busy%200-4") == {"alert0", "alert2", "alert4", by_hand}
    browser.submit("/items/alert2", "/items/alert2/verdict", verdict="unsure")
    assert proposed("/items/busy%200-4") == {"alert0", "alert4", by_hand}
    page = browser.submit("/items/busy%200-4", "/items/busy%200-4/merge", into="alert4", reason="r")
    assert "Accounts" in text_of(page) and "Alerts of the case" in text_of(page)
