"""Behind a proxy of Debian's that ends TLS: people decide in a browser, with and without scripts, and share a desk."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from fraudlake.tables import SILVER_REVIEW_EVENTS
from tests.desk import browsers
from tests.integration.certificates import Authority

ITEM = "/items/alert2?day=2026-03-07"
CADDY = """
{{
  admin off
  auto_https off
  storage file_system {folder}
}}
https://desk.example:{port} {{
  bind 127.0.0.1
  tls {pem} {pem}
  reverse_proxy 127.0.0.1:{desk}
}}
"""
NGINX = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};
    location / {{ proxy_pass http://127.0.0.1:{desk}; {more} }}
  }}
}}
"""
BY_PASSWORD = "auth_basic desk; auth_basic_user_file {users}; proxy_set_header X-Forwarded-User $remote_user;"
COMMANDS = {
    "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config"],
    "nginx": ["nginx", "-e", "stderr", "-c"],
}
PROXIES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"there is no {name} here: apt-get install {name}"),
    )
    for name in COMMANDS
]
pytestmark = [pytest.mark.long, browsers.chromium_needed]


@dataclass
class Served:
    """A desk and the proxy in front of it."""

    address: str
    """What the desk printed."""
    url: str
    """Where people reach the proxy."""
    root: Path

    def events(self) -> list[tuple[str, str]]:
        statement = f"SELECT analyst, kind FROM {SILVER_REVIEW_EVENTS.name} ORDER BY number"
        rows = LocalStore(Settings(lake=self.root)).query(statement, SILVER_REVIEW_EVENTS).to_pylist()
        return [(row["analyst"], row["kind"]) for row in rows]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


Serve = Callable[..., Served]


@pytest.fixture
def serve(root: Path, tmp_path: Path) -> Iterator[Serve]:
    """Serve a desk, and a proxy with TLS in front of it, until the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str | Path) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True))
        return started[-1]

    def open_(proxy: str, *flags: str, more: str = "") -> Served:
        port = free_port()
        url = f"https://desk.example:{port}"
        desk = start(sys.executable, "-m", "fraudlake_cli", "--lake", root, "--json", "desk", "--port", "0",
                     "--public-url", url, *flags)  # fmt: skip
        assert desk.stdout is not None
        address = json.loads(desk.stdout.readline())["address"]
        pem = Authority.new("tests").write_signed(tmp_path / "proxy.pem", 10)
        listening = _port_of(desk.pid)
        config = tmp_path / "proxy.conf"
        form = CADDY if proxy == "caddy" else NGINX
        config.write_text(form.format(port=port, desk=listening, pem=pem, folder=tmp_path, more=more))
        start(*COMMANDS[proxy], config)
        _wait_for(port)
        return Served(address, url, root)

    yield open_
    for one in reversed(started):
        one.terminate()
        one.wait()


def _port_of(process: int) -> int:
    """Return the port on which a process listens, which the printed address of the proxy does not say."""
    sockets = {path.readlink().name for path in Path(f"/proc/{process}/fd").iterdir() if path.is_symlink()}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        if state == "0A" and f"socket:[{inode}]" in sockets:
            return int(local.partition(":")[2], 16)
    raise AssertionError("the desk does not listen")


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the proxy does not listen")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.started(flags=("--host-resolver-rules=MAP desk.example 127.0.0.1",)) as browser:
        yield browser


@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_an_analyst_decides_through_a_proxy_that_ends_tls(
    serve: Serve, browser: Browser, proxy: str, has_scripts: bool
) -> None:
    served = serve(proxy, "--analyst", "anna")
    assert re.fullmatch(rf"{served.url}/\?token=\S+", served.address)
    page = browser.new_page(ignore_https_errors=True, java_script_enabled=has_scripts)
    page.goto(served.address)
    page.goto(served.url + ITEM)
    page.click('form[action$="/take"] button')
    expect(page.locator("#notices")).to_contain_text("It is yours.")
    page.click('button[value="fraud"]')
    expect(page.locator("#notices")).to_contain_text("Recorded at")
    assert served.events() == [("anna", "taken"), ("anna", "verdict")]
    (cookie,) = page.context.cookies()
    assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    page.close()


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_page_of_another_site_does_nothing_through_a_proxy(serve: Serve, browser: Browser, proxy: str) -> None:
    served = serve(proxy)
    page = browser.new_page(ignore_https_errors=True)
    page.goto(served.address)
    page.goto(served.url + ITEM)
    form = page.locator('form[action$="/take"]').evaluate("form => form.outerHTML")
    page.goto("about:blank")
    page.set_content(form.replace('action="', f'action="{served.url}'))
    with page.expect_response(lambda answer: answer.request.method == "POST") as sent:
        page.click("button")
    assert sent.value.status == 403 and served.events() == []
    page.close()


@pytest.mark.parametrize("proxy", [one for one in PROXIES if one.values == ("nginx",)])
def test_a_team_shares_a_desk_behind_a_proxy_that_knows_its_people(
    serve: Serve, browser: Browser, proxy: str, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("anna:{PLAIN}one\nbert:{PLAIN}two\n")
    flags = ("--user-header", "X-Forwarded-User", "--trusted-proxies", "127.0.0.1")
    served = serve(proxy, *flags, more=BY_PASSWORD.format(users=users))
    assert served.address == f"{served.url}/"
    anna, bert = (_as(browser, served, name, password) for name, password in (("anna", "one"), ("bert", "two")))
    anna.click('form[action$="/take"] button')
    expect(anna.locator("#notices")).to_contain_text("It is yours.")
    bert.reload()
    expect(bert.locator(".decision")).to_contain_text("anna holds this until")
    bert.set_extra_http_headers({"X-Forwarded-User": "anna"})
    bert.reload()
    expect(bert.locator(".who")).to_contain_text("bert")
    assert served.events() == [("anna", "taken")]
    unnamed = httpx2.get(served.url.replace("desk.example", "127.0.0.1"), verify=False)
    assert unnamed.status_code == 401


def _as(browser: Browser, served: Served, name: str, password: str) -> Page:
    context = browser.new_context(
        ignore_https_errors=True, http_credentials={"username": name, "password": password, "origin": served.url}
    )
    page = context.new_page()
    page.goto(served.url + ITEM)
    return page
