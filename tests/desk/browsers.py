"""Browsers: Debian's Chromium and Firefox, in which tests look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")

chromium_needed = pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")
"""Skips a test where there is no Chromium."""
_firefox_needed = pytest.mark.skipif(_FIREFOX is None, reason="there is no Firefox here: apt-get install firefox-esr")
BOTH = [pytest.param("chromium", marks=chromium_needed), pytest.param("firefox", marks=_firefox_needed)]
"""The names of the browsers, as parameters of a test or a fixture; one that is not here is skipped."""


@contextmanager
def started(name: str = "chromium", flags: Sequence[str] = (), without: Sequence[str] = ()) -> Iterator[Browser]:
    """Start a browser; flags are of Chromium, and so are those of Playwright that it starts without."""
    options: dict[str, Any] = {"executable_path": _CHROMIUM, "args": ["--no-sandbox", *flags]}
    options["ignore_default_args"] = [*without]
    if name == "firefox":
        # Playwright speaks with Firefox as Debian builds it by WebDriver BiDi.
        options = {"executable_path": _FIREFOX, "channel": "moz-firefox"}
    with sync_playwright() as playwright:
        browser = getattr(playwright, name).launch(**options)
        yield browser
        browser.close()
