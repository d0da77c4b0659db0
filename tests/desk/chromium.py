"""Chromium: Debian's browser, in which tests look at pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")

needed = pytest.mark.skipif(_PROGRAM is None, reason="there is no Chromium here: apt-get install chromium")
"""Skips a test where there is no Chromium."""


@contextmanager
def started(*flags: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=["--no-sandbox", *flags])
        yield browser
        browser.close()
