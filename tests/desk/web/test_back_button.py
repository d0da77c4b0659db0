"""The queue after Back, in a browser that keeps pages: Playwright switches that off unless told otherwise."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from playwright.sync_api import TimeoutError, expect

from tests.desk import browsers

pytestmark = pytest.mark.long


@browsers.chromium_needed
def test_the_queue_after_back_has_what_was_decided_meanwhile(desk: Any) -> None:
    opened = desk()
    with browsers.started(without=("--disable-back-forward-cache",)) as browser:
        context = browser.new_context()
        page = context.new_page()
        page.goto(opened.address)
        page.goto(f"{opened.origin}/?state=open")
        expect(page.locator("tbody tr")).to_have_count(9)
        page.click("text=People")
        expect(page.locator("h1")).to_have_text("People")
        other = context.new_page()
        other.goto(f"{opened.origin}/items/alert2")
        other.keyboard.press("g")
        expect(other.locator("#notices")).to_contain_text("Recorded at")
        with suppress(TimeoutError):  # a page that was kept loads nothing
            page.go_back(wait_until="commit", timeout=2000)
        expect(page.locator("h1")).to_contain_text("Queue of")
        expect(page.locator("tbody tr")).to_have_count(8)
