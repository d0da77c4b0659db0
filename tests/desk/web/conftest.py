"""What the tests of the pages share: a small lake, and browsers of people who look at it.

They look at it on a laptop, and through the SQL warehouse of a workspace.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.core import Config
from playwright import sync_api as playwright
from starlette.testclient import TestClient

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.store import Store
from fraudlake.settings import Settings
from fraudlake_desk.web import server
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role
from fraudlake_workspace.warehouse import WarehouseStore
from tests.desk import browsers, small_lake
from tests.workspace.warehouse import Warehouse, serving
from tests.workspace_http import TOKEN

PORT = 8642
ADDRESS = f"http://127.0.0.1:{PORT}"


class Browser(TestClient):
    """A browser with the cookie of a desk."""

    def form(self, page: str, action: str, headers: list[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
        """The fields of a form of a page that a browser would send."""
        text = self.get(page, headers=headers).text
        sends = rf'action="{re.escape(action)}"'
        form = next((one for one in re.finditer("<form.*?</form>", text, re.DOTALL) if re.search(sends, one[0])), None)
        assert form, f"{page} has no form for {action}"
        fields: dict[str, Any] = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form[0]))
        for name, value in re.findall(r'<input type="checkbox" name="(\w+)" value="([^"]*)" checked', form[0]):
            fields.setdefault(name, []).append(value)
        return fields

    def submit(self, page: str, action: str, **fields: str | list[str]) -> str:
        """Fill in a form of a page, send it, and return the page that follows, without its tags."""
        answer = self.post(action, data={**self.form(page, action), **fields})
        assert answer.status_code == 200, answer.text
        return answer.text


Open = Callable[..., Browser]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_lake.make(tmp_path_factory.mktemp("desk") / "lake")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A lake of this test's own."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(Settings(lake=root))


@pytest.fixture
def warehouse(root: Path) -> Iterator[Warehouse]:
    """A SQL warehouse over the lake, in which the job define has made what the desk writes; answers come in parts."""
    written = (tables.SILVER_REVIEW_EVENTS, tables.SILVER_VERDICTS, tables.SILVER_RULES, tables.SILVER_LIST_ENTRIES)
    for table in (*written, tables.SILVER_APPROVAL_EVENTS):
        small_lake.write(root, table, [])
    with serving(Warehouse(root, chunk=7)) as served:
        yield served


OpenStore = Callable[..., Store]


@pytest.fixture(params=["laptop", "workspace"])
def open_store(request: pytest.FixtureRequest, root: Path) -> OpenStore:
    """Open the lake on a laptop, and in a workspace."""
    if request.param == "laptop":
        return lambda **settings: LocalStore(Settings(lake=root, **settings))
    warehouse = request.getfixturevalue("warehouse")
    config = Config(host=warehouse.host, token=TOKEN, auth_type="pat", retry_timeout_seconds=1)
    named = {"catalog": "main", "schema_name": "fraud", "warehouse": "sql"}
    return lambda **settings: WarehouseStore(Settings(**named, **settings), WorkspaceClient(config=config))


@pytest.fixture
def browse(open_store: OpenStore) -> Open:
    """Open the desk as an analyst, or as a reader."""

    def open_(name: str = "anna", role: Role = Role.ANALYST, **settings: object) -> Browser:
        site, access = server.site_of_one(open_store(**settings), name, role, ("127.0.0.1", PORT))
        browser = Browser(application(site), base_url=ADDRESS, raise_server_exceptions=False)
        assert browser.get(f"/?token={access.token}").status_code == 200
        return browser

    return open_


@dataclass
class Desk:
    """A desk in a process of its own."""

    root: Path
    analyst: str = "anna"
    port: int = 0
    process: subprocess.Popen[str] = field(init=False)
    address: str = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "fraudlake_cli", "--lake", str(self.root), "--json", "desk"]
        command += ["--port", str(self.port), "--analyst", self.analyst]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = json.loads(self.process.stdout.readline())["address"]
        self.port = int(re.findall(r":(\d+)/", self.address)[0])

    @property
    def origin(self) -> str:
        return self.address.partition("/?")[0]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def desk(root: Path) -> Iterator[Callable[..., Desk]]:
    opened: list[Desk] = []

    def open_(analyst: str = "anna", port: int = 0) -> Desk:
        opened.append(Desk(root, analyst, port))
        return opened[-1]

    yield open_
    for one in opened:
        one.end()


@pytest.fixture(scope="module", params=browsers.BOTH)
def browser(request: pytest.FixtureRequest) -> Iterator[playwright.Browser]:
    """Debian's browsers, one after the other."""
    with browsers.started(request.param) as started:
        yield started
