"""The pages in browsers that run no script: each form is filled in and sent by its buttons alone.

Playwright cannot press buttons in a Firefox whose scripts are off, so the desk's script is withheld from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log
from fraudlake.review.event import Event
from fraudlake.settings import Settings
from fraudlake_desk import rules
from tests.desk import small_lake

pytestmark = pytest.mark.long


@pytest.fixture
def page(browser: Browser, desk: Any) -> Iterator[Page]:
    is_chromium = browser.browser_type.name == "chromium"
    context = browser.new_context(java_script_enabled=not is_chromium)
    context.route("**/desk.js*", lambda route: route.abort())
    page = context.new_page()
    page.goto(desk().address)
    yield page
    context.close()


def events(root: Path) -> list[Event]:
    return event_log.read_events(LocalStore(Settings(lake=root)))


@pytest.fixture
def off(page: Page, browser: Browser) -> Page:
    """A page whose browser has switched scripts off, so that it shows what is for such browsers."""
    if browser.browser_type.name != "chromium":
        pytest.skip("the desk's script is withheld, and not off")
    return page


def origin(page: Page) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(page.url))


def test_an_item_is_taken_decided_and_withdrawn(page: Page, root: Path) -> None:
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".decision")).to_contain_text("Yours until")
    page.get_by_role("button", name="Give back").click()
    expect(page.locator("#notices")).to_contain_text("You gave it back.")
    page.get_by_role("button", name="Take").click()
    page.locator("#reason").fill("the customer says so")
    page.locator("#note").fill("called at noon")
    for verdict in ("Fraud", "Genuine", "Unsure"):
        page.get_by_role("button", name=verdict).click()
        expect(page.locator("#notices")).to_contain_text(f"{verdict.lower()}")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#notices")).to_contain_text("The verdict is withdrawn")
    kinds = ["taken", "released", "taken", "verdict", "corrected", "corrected", "withdrawn"]
    assert [event.kind for event in events(root)] == kinds
    assert [event.verdict for event in events(root)[3:6]] == ["fraud", "genuine", "unsure"]
    assert (events(root)[3].reason, events(root)[3].note) == ("the customer says so", "called at noon")
    assert events(root)[3].fraud_ids


@pytest.mark.parametrize(
    ("button", "kind"),
    [("Save the note", "noted"), ("Wait until then", "waiting"), ("Assign", "assigned"), ("For a lead", "escalated")],
)
def test_an_item_is_set_aside(page: Page, root: Path, button: str, kind: str) -> None:
    page.get_by_role("button", name="Next").click()
    page.locator("summary", has_text="Without a verdict").click()
    page.locator("#reason").fill("more is needed")
    page.get_by_label("Person who decides").fill("bert")
    page.get_by_role("button", name=button, exact=button == "Assign").click()
    expect(page.locator("#notices .good")).to_be_visible()
    event = events(root)[-1]
    assert (event.kind, event.reason, event.assignee) == (
        kind,
        "more is needed",
        "bert" if kind == "assigned" else None,
    )


def test_what_a_form_lacks_is_said_on_a_page_with_a_way_back(page: Page, root: Path) -> None:
    page.get_by_role("button", name="Next").click()
    page.locator("summary", has_text="Without a verdict").click()
    page.get_by_role("button", name="For a lead").click()
    expect(page.locator("main")).to_contain_text("give a reason why")
    page.go_back()
    expect(page.locator("h1")).to_contain_text("Account")
    assert [event.kind for event in events(root)] == ["taken"]


def test_the_queue_is_filtered_and_searched(page: Page) -> None:
    page.locator("summary", has_text="Filter").click()
    page.select_option("#state", "open")
    page.fill("#amount_to", "1000")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert "state=open" in page.url and "amount_to=1000" in page.url
    page.fill("#find", "A6")
    page.press("#find", "Enter")
    expect(page.locator("h1")).to_have_text("Account A6")


def test_parts_of_pages_that_scripts_load_have_a_link(off: Page) -> None:
    page = off
    at = origin(page)
    for path, name in (
        ("/items/alert2", "Shared with others"),
        ("/health", "Streams"),
        ("/rules/small_then_large", "Backtest"),
    ):
        page.goto(at + path)
        page.get_by_role("link", name="Look", exact=True).first.click()
        expect(page.locator("header nav")).to_be_visible()
        assert name in page.title()


def test_limits_are_tried_and_become_a_draft(off: Page, root: Path) -> None:
    page = off
    page.goto(origin(page) + "/rules/small_then_large")
    page.locator("#try-large_above").fill("900")
    page.get_by_role("button", name="Try").click()
    larger = sum(row["amount"] > 900 for row in small_lake.transactions())
    expect(page.locator("tr", has_text="Alerts").first).to_contain_text(f"10\t{larger}", use_inner_text=True)
    page.go_back()
    page.locator("#limit-large_above").fill("900")
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.locator("#notices")).to_contain_text("Version 2 is a draft now.")
    draft = rules.read(LocalStore(Settings(lake=root)))[0].version_of("small_then_large", 2)
    assert draft.rule.limits["large_above"] == 900


def test_the_days_of_people_are_chosen(page: Page) -> None:
    page.get_by_role("link", name="People").click()
    page.get_by_label("First day").fill("2026-03-01")
    page.get_by_label("Last day").fill("2026-03-31")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("h1 + .muted")).to_have_text("1 Mar 2026 to 31 Mar 2026")


def test_several_items_are_chosen_by_boxes_and_decided_on_at_once(page: Page, root: Path) -> None:
    page.click("summary:has-text('With several items')")
    for number in range(2):
        page.locator("input[name=item]").nth(number).check()
    page.locator("#reason").fill("usual for the customer")
    page.get_by_role("button", name="Genuine").click()
    expect(page.locator("h1")).to_have_text("2 of 2 items done")
    expect(page.locator("td:has-text('decided: genuine')")).to_have_count(2)
    assert [(event.verdict, event.reason) for event in events(root)] == [("genuine", "usual for the customer")] * 2


def test_a_file_is_attached_and_downloaded(page: Page, root: Path) -> None:
    page.goto(f"{origin(page)}/items/alert2")
    page.set_input_files("#file", {"name": "answer.txt", "mimeType": "text/plain", "buffer": b"the bank answered"})
    page.get_by_role("button", name="Attach", exact=True).click()
    expect(page.locator("#notices")).to_contain_text("The file is attached.")
    with page.expect_download() as download:
        page.locator(".files-of").get_by_text("answer.txt").click()
    assert Path(download.value.path()).read_bytes() == b"the bank answered"
    assert [event.file_name for event in events(root)] == ["answer.txt"]


def test_a_case_is_opened_merged_and_separated(page: Page, root: Path) -> None:
    page.goto(origin(page) + "/accounts/A7")
    page.locator('input[form="open"]').first.check()
    page.locator("#open-reason").fill("the customer called")
    page.get_by_role("button", name="Open a case").click()
    expect(page.locator("#notices")).to_contain_text("The case is open.")
    page.locator("summary", has_text="Same matter").click()
    page.locator("#other").fill("alert1")
    page.locator("#merge-reason").fill("one device")
    page.get_by_role("button", name="Merge").click()
    expect(page.locator("#notices")).to_contain_text("The two are one case now.")
    page.get_by_label("Reason to separate").first.fill("another device")
    page.get_by_role("button", name="Separate").click()
    expect(page.locator("#notices")).to_contain_text("It is a case of its own again.")
    assert [event.kind for event in events(root)] == ["opened", "merged", "separated"]


def test_a_rule_is_suppressed_and_the_entry_ended(page: Page, root: Path) -> None:
    page.goto(origin(page) + "/items/alert2?day=2026-03-07")
    page.locator("summary", has_text="Do not alert for").click()
    page.locator("#suppress-until").fill((datetime.now(UTC) + timedelta(days=9)).date().isoformat())
    page.locator("#suppress-reason").fill("a shop that tests its terminal")
    page.locator('form[action="/items/alert2/suppress"] button').click()
    expect(page.locator("#notices .good")).to_be_visible()
    page.goto(origin(page) + "/rules")
    row = page.locator("#suppressed tbody tr")
    expect(row).to_contain_text("a shop that tests its terminal")
    row.get_by_role("textbox").fill("it is over")
    row.get_by_role("button", name="End").click()
    expect(page.locator("#suppressed tbody tr")).to_contain_text("ended by anna · it is over")
