"""Documents in a browser: they fit a phone, a desk and paper, light and dark, without an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import load
from fraudlake_desk.documents import document, report
from fraudlake_desk.documents.document import Document
from fraudlake_desk.documents.dossier import dossier
from tests.desk import browsers
from tests.desk import conftest as made

NOW = made.NOON + 10 * made.DAY

pytestmark = [pytest.mark.long, browsers.chromium_needed]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started() as browser:
        yield browser


def documents(root: Path) -> dict[str, Document]:
    store = LocalStore(load(lake=root))
    return {"report": report.report(store, report.days_of(store)), "dossier": dossier(store, "a1")}


@pytest.mark.parametrize("kind", ["report", "dossier"])
@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (390, "screen"), (690, "print")])
def test_a_document_fits_its_page(
    made_lake: Path, tmp_path: Path, browser: Browser, kind: str, width: int, media: Any
) -> None:
    file = tmp_path / f"{kind}.html"
    document.save(file, document.render(documents(made_lake)[kind], NOW))
    page = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
    page.goto(file.as_uri())
    page.emulate_media(media=media)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert said == []
    page.close()


def test_colours_follow_the_readers_system_and_paper_is_white(
    made_lake: Path, tmp_path: Path, browser: Browser
) -> None:
    file = tmp_path / "report.html"
    document.save(file, document.render(documents(made_lake)["report"], NOW))
    page = browser.new_page()
    page.goto(file.as_uri())

    def background(**given: Any) -> str:
        page.emulate_media(**given)
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = background(color_scheme="light", media="screen"), background(color_scheme="dark", media="screen")
    assert light == "rgb(244, 245, 247)" and dark == "rgb(17, 21, 26)"
    assert background(color_scheme="dark", media="print") == "rgb(255, 255, 255)"
    page.close()
