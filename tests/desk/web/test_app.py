"""As a Databricks App: every page, the dossier and the report through a SQL warehouse are those of a laptop."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from fraudlake_desk.web import server
from fraudlake_desk.web.access import PlatformAccess
from fraudlake_desk.web.app_users import UserStores, groups_of
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role, RoleByGroup
from fraudlake_desk.web.site import Site
from tests.desk.web.conftest import ADDRESS, PORT
from tests.workspace.warehouse import Warehouse, serving
from tests.workspace_http import TOKEN

ANNA = "anna@example.com"
WHO = {"x-forwarded-email": ANNA, "x-forwarded-access-token": TOKEN}
PAGES = (
    *(
        "/",
        "/?day=2026-03-07",
        "/items/a1",
        "/items/a2",
        "/items/a5",
        "/items/drawn-1",
        "/items/a1/shared",
        "/items/a1/links",
    ),
    *("/items/a1/dossier", "/items/a4/dossier", "/items/a5/dossier", "/accounts/1", "/accounts/nobody"),
    *("/rules", "/rules/small_then_large", "/rules/small_then_large/backtest?large_above=650", "/health", "/report"),
    *("/report?from=2026-03-07&to=2026-03-07", "/find?name=a2", "/find?name=4"),
)
Text = Callable[[str], tuple[int, str]]


@pytest.fixture
def root(made_lake: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(made_lake, tmp_path / "made.fraud"))
    shutil.rmtree(root / "tables" / "silver_rules")  # its definitions are no rules
    return root


def reader(browser: TestClient, name: str, **headers: str) -> Text:
    """Return the status and text of a page, without the name of the lake and the time at which it was made."""

    def read(page: str) -> tuple[int, str]:
        answer = browser.get(page, headers=headers)
        plain = html.unescape(re.sub(r"<[^>]*>", " ", answer.text)).replace(name, "the lake")
        plain = plain.replace(name.rpartition("/")[2], "the lake")
        return answer.status_code, re.sub(r"\S+ \S+ UTC\b", "then", " ".join(plain.split()))

    return read


@pytest.fixture
def on_a_laptop(root: Path) -> Text:
    store = LocalStore(Settings(lake=root))
    site, access = server.site_of_one(store, ANNA, Role.ANALYST, ("127.0.0.1", PORT))
    browser = TestClient(application(site), base_url=ADDRESS)
    browser.get(f"/?token={access.token}")
    return reader(browser, store.name)


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "texts"])
def test_every_page_is_that_of_a_laptop(
    root: Path, on_a_laptop: Text, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Warehouse(root, has_links, chunk=3)) as warehouse:
        monkeypatch.setenv("DATABRICKS_HOST", warehouse.host)
        stores = UserStores(Settings(catalog="main", schema_name="fraud", warehouse="w1"))
        access = PlatformAccess(RoleByGroup(frozenset(["analysts"])), groups_of)
        site = Site(lambda person: stores.open(person.name, str(person.credentials)), access)
        in_the_app = reader(TestClient(application(site), base_url="https://desk.example"), "main.fraud", **WHO)
        for page in PAGES:
            status, text = in_the_app(page)
            assert (page, status) == (page, 200)
            expected = on_a_laptop(page)[1]
            if page == "/health":  # the jobs of the workspace show its streams
                text, expected = (one.partition("Reconciliation")[0] for one in (text, expected))
            assert text == expected
