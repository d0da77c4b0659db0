"""Access: who may look at the pages, and which requests do nothing."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings, load
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk.web import access, forms, guard, server
from fraudlake_desk.web.access import Access, PlatformAccess, ProxyAccess, TokenAccess
from fraudlake_desk.web.application import application
from fraudlake_desk.web.role import Role, RoleByGroup, SameRole
from fraudlake_desk.web.site import Site
from tests.conftest import FraudlakeHere
from tests.desk.web.conftest import ADDRESS, PORT, Browser, Open

CASE = "/items/alert2"
TAKE = f"{CASE}/take"


def events(root: Path) -> int:
    return len(LocalStore(Settings(lake=root)).query("SELECT 1 FROM silver_review_events", SILVER_REVIEW_EVENTS))


def stranger(root: Path) -> Browser:
    site, _ = server.site_of_one(LocalStore(Settings(lake=root)), "anna", Role.ANALYST, ("127.0.0.1", PORT))
    return Browser(application(site), base_url=ADDRESS)


@pytest.mark.parametrize("page", ["/", CASE, "/rules", "/health", "/?token=wrong", "/?token=%C3%A9", "/nothing"])
def test_nobody_sees_a_page_without_the_token(root: Path, page: str) -> None:
    answer = stranger(root).get(page)
    assert answer.status_code == 403
    assert "its token lets you in, once" in answer.text and "small_then_large" not in answer.text


def test_the_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(root: Path) -> None:
    site, access = server.site_of_one(LocalStore(Settings(lake=root)), "anna", Role.ANALYST, ("127.0.0.1", PORT))
    answer = TestClient(application(site), base_url=ADDRESS).get(f"/rules?token={access.token}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/rules")
    cookie = answer.headers["set-cookie"].lower()
    assert f"fraudlake_desk_{PORT}=" in cookie and "httponly" in cookie and "samesite=strict" in cookie
    assert access.token.lower() not in cookie


def test_a_token_works_once_and_the_next_one_is_printed(root: Path) -> None:
    printed: list[str] = []
    store = LocalStore(Settings(lake=root))
    site, access = server.site_of_one(store, "anna", Role.LEAD, ("127.0.0.1", PORT), renewed=printed.append)
    first, app = access.token, application(site)
    anna, bert, carl = (Browser(app, base_url=ADDRESS) for _ in range(3))
    assert anna.get(f"/?token={first}").status_code == 200
    assert printed == [access.token] and first != access.token
    again = bert.get(f"/?token={first}")
    assert again.status_code == 403 and "printed last: its token lets you in, once" in again.text
    assert anna.get("/rules").status_code == 200  # the cookie goes on to work, also with the used address
    assert anna.get(f"/rules?token={first}").status_code == 200 and len(printed) == 1
    assert anna.get(f"/rules?token={access.token}").status_code == 200 and len(printed) == 1
    assert carl.get(f"/?token={printed[0]}").status_code == 200 and len(printed) == 2


@pytest.mark.parametrize(("seconds", "status"), [(60.0, 200), (0.0, 403)])
def test_a_token_for_a_browser_works_once_and_for_a_minute(
    root: Path, seconds: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, of_token = server.site_of_one(
        LocalStore(Settings(lake=root)),
        "anna",
        Role.LEAD,
        ("127.0.0.1", PORT),
        renewed=lambda token: pytest.fail(token),
    )
    monkeypatch.setattr(access, "BRIEF", seconds)
    token, app = of_token.brief_token(), application(site)
    assert Browser(app, base_url=ADDRESS).get(f"/?token={token}").status_code == status
    assert Browser(app, base_url=ADDRESS).get(f"/?token={token}").status_code == 403
    assert token != of_token.token


def test_the_browser_is_started_without_the_printed_token(
    root: Path, fraudlake_here: FraudlakeHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    answers: list[int] = []

    def serve(app: ASGIApp, *_: Any) -> None:
        answers.extend(Browser(app, base_url=opened[0].partition("/?")[0]).get(opened[0]).status_code for _ in range(2))

    monkeypatch.setattr(server, "serve", serve)
    done = fraudlake_here("--lake", str(root), "desk", "--port", "0", "--open")
    (printed,) = done.stdout.splitlines()
    assert printed.startswith("the desk of ") and opened[0] not in printed
    assert answers == [200, 403]


def test_a_name_that_is_not_this_machines_is_refused(browse: Open) -> None:
    assert browse().get("/", headers={"host": f"desk.example:{PORT}"}).status_code == 403


@pytest.mark.parametrize("path", ["/", CASE, "/rules", "/health", "/nothing", "/static/desk.css"])
def test_every_answer_has_a_strict_policy(browse: Open, path: str) -> None:
    answer = browse().get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert " style=" not in answer.text and "<script>" not in answer.text and " onclick" not in answer.text


def test_pages_are_not_kept_by_browsers(browse: Open) -> None:
    assert browse().get(CASE).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:1"},
    ],
)
def test_another_sites_form_does_nothing(browse: Open, root: Path, headers: dict[str, str]) -> None:
    browser = browse()
    answer = browser.post(TAKE, data=browser.form(CASE, TAKE), headers=headers)
    assert answer.status_code == 403 and "another site" in answer.text
    assert events(root) == 0


@pytest.mark.parametrize("token", [None, "", "0" * 64])
def test_a_form_without_the_pages_token_does_nothing(browse: Open, root: Path, token: str | None) -> None:
    browser = browse()
    fields = {name: value for name, value in browser.form(CASE, TAKE).items() if name != "form"}
    answer = browser.post(TAKE, data=fields | ({} if token is None else {"form": token}))
    assert answer.status_code == 403 and "load it again" in answer.text
    assert events(root) == 0


def test_the_desks_own_form_is_carried_out(browse: Open, root: Path) -> None:
    browser = browse()
    headers = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}
    assert browser.post(TAKE, data=browser.form(CASE, TAKE), headers=headers).status_code == 200
    assert events(root) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "null", "sec-fetch-site": "same-origin"},  # of a form without a script, by the policy of a proxy
        {"origin": ADDRESS.replace("http:", "https:")},  # through a proxy that ends TLS and keeps the host
        {},
    ],
)
def test_a_form_of_the_desk_is_carried_out_as_browsers_send_it(
    browse: Open, root: Path, headers: dict[str, str]
) -> None:
    browser = browse()
    assert browser.post(TAKE, data=browser.form(CASE, TAKE), headers=headers).status_code == 200
    assert events(root) == 1


def behind_a_proxy(root: Path, access: Access, peer: str = "127.0.0.1", host: str = f"127.0.0.1:{PORT}") -> Browser:
    """A browser that asks a desk through a proxy, which connects from an address and names a host."""
    app = application(Site(lambda person: LocalStore(Settings(lake=root)), access))
    return Browser(app, base_url=f"http://{host}", raise_server_exceptions=False, client=(peer, 50_000))


@pytest.mark.parametrize("host", ["desk.example", f"127.0.0.1:{PORT}"], ids=["kept", "rewritten"])
def test_the_public_address_is_that_of_the_pages_whatever_host_the_proxy_names(root: Path, host: str) -> None:
    access = TokenAccess("anna", Role.ANALYST, ("127.0.0.1",), PORT, "https://desk.example")
    browser = behind_a_proxy(root, access, host=host)
    signed_in = browser.get(f"/?token={access.token}", follow_redirects=False)
    assert "secure" in signed_in.headers["set-cookie"].lower() and signed_in.headers["location"] == "/"
    browser.headers["cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
    form = browser.form(CASE, TAKE)
    for origin, status in (
        ("https://evil.example", 403),
        ("http://desk.example:1", 403),
        ("https://desk.example", 303),
    ):
        assert browser.post(TAKE, data=form, headers={"origin": origin}, follow_redirects=False).status_code == status
    assert events(root) == 1
    assert browser.get("/", headers={"host": "rebound.example"}).status_code == 403


def of_team(**changed: Any) -> ProxyAccess:
    trusted = [ip_network("127.0.0.1"), ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    given = {"header": "X-Forwarded-User", "trusted": trusted, "roles": SameRole(Role.ANALYST), "hosts": ()}
    return ProxyAccess(**{**given, "public_url": "https://desk.example", **changed})


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.1.255.7", "::ffff:10.1.0.9", "fd00::1"])
def test_a_trusted_proxy_names_who_decides(root: Path, peer: str) -> None:
    browser = behind_a_proxy(root, of_team(), peer)
    for name, item in (("anna", "alert2"), ("Jürgen Groß", "alert3")):
        named, page = [(b"x-forwarded-user", name.encode())], f"/items/{item}"
        assert name in browser.get(page, headers=named).text
        assert (
            "It is yours"
            in browser.post(f"{page}/take", data=browser.form(page, f"{page}/take", named), headers=named).text
        )
    rows = LocalStore(Settings(lake=root)).query("SELECT analyst FROM silver_review_events", SILVER_REVIEW_EVENTS)
    assert sorted(rows["analyst"].to_pylist()) == ["Jürgen Groß", "anna"]


@pytest.mark.parametrize("peer", ["10.2.0.1", "127.0.0.2", "::1", "::ffff:10.2.0.1", "testclient"])
def test_nobody_but_a_trusted_proxy_names_a_person(root: Path, peer: str) -> None:
    answer = behind_a_proxy(root, of_team(), peer).get("/", headers={"x-forwarded-user": "anna"})
    assert answer.status_code == 403 and f"open https://desk.example: {peer} is not a proxy" in answer.text


@pytest.mark.parametrize("names", [[], [""], ["  "], ["mallory", "anna"]])
def test_a_proxy_that_names_nobody_or_two_lets_nobody_in(root: Path, names: list[str]) -> None:
    headers = [(b"x-forwarded-user", name.encode()) for name in names]
    answer = behind_a_proxy(root, of_team()).get("/", headers=headers)
    assert answer.status_code == 403 and "it must set the header X-Forwarded-User, once" in answer.text


def test_a_form_of_one_person_is_not_that_of_another(root: Path) -> None:
    browser = behind_a_proxy(root, of_team())
    browser.headers["x-forwarded-user"] = "anna"
    form = browser.form(CASE, TAKE)
    answer = browser.post(TAKE, data=form, headers={"x-forwarded-user": "bert"})
    assert answer.status_code == 403 and events(root) == 0


def test_a_team_of_readers_does_not_decide(root: Path) -> None:
    browser = behind_a_proxy(root, of_team(most=Role.READER))
    page = browser.get(CASE, headers={"x-forwarded-user": "anna"})
    assert page.status_code == 200 and f'action="{TAKE}"' not in page.text


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"user_header": "X-User"}, "--user-header needs --public-url, and --trusted-proxies"),
        ({"user_header": "X-User", "public_url": "https://d.example"}, "--user-header needs --public-url, and --trus"),
        ({"user_header": "X-User", "trusted_proxies": "10.0.0.1"}, "--user-header needs --public-url, and --trusted"),
    ],
)
def test_a_header_needs_the_addresses_that_may_set_it(root: Path, given: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError, match=f"^{line}"):
        server.site_of_team(LocalStore(load(lake=root, **given)), Role.LEAD, "127.0.0.1")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"public_url": "desk.example"}, "must be an address without a path"),
        ({"public_url": "https://desk.example/desk"}, "must be an address without a path"),
        ({"public_url": "https://desk.example:x"}, "must be an address without a path"),
        ({"public_url": "ftp://desk.example"}, "must be an address without a path"),
        ({"trusted_proxies": "proxy.example"}, "must be addresses or networks"),
        ({"trusted_proxies": "10.1.0.5/16"}, "must be addresses or networks"),
    ],
)
def test_a_setting_that_says_no_place_is_refused(given: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        load(**given)


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://Desk.Example/", "https://desk.example"),
        ("https://desk.example:443", "https://desk.example"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_a_public_address_is_written_as_browsers_write_an_origin(given: str, origin: str) -> None:
    assert load(public_url=given).public_url == origin


def test_a_reader_reads_and_does_not_decide(browse: Open, root: Path) -> None:
    reader, analyst = browse("rita", Role.READER), browse()
    page = reader.get(CASE).text
    assert "you may read" in page and '<form method="post"' not in page
    fields = {**analyst.form(CASE, TAKE), "form": _token(reader)}
    answer = reader.post(TAKE, data=fields)
    assert answer.status_code == 403 and "may only read: ask to become an analyst" in answer.text
    assert events(root) == 0


def _token(browser: Browser) -> str:
    return browser.get("/").text.partition('name="form-token" content="')[2].partition('"')[0]


def test_nobody_can_name_another_analyst(browse: Open, store: LocalStore) -> None:
    browser = browse()
    headers = {"x-forwarded-email": "boss@example.com", "x-forwarded-access-token": "x"}
    browser.post(TAKE, data={**browser.form(CASE, TAKE), "analyst": "boss"}, headers=headers)
    assert store.query("SELECT analyst FROM silver_review_events", SILVER_REVIEW_EVENTS)["analyst"].to_pylist() == [
        "anna"
    ]


def test_a_form_that_is_too_large_writes_nothing(browse: Open, root: Path) -> None:
    browser, action = browse(), f"{CASE}/verdict"
    fields = {**browser.form(CASE, action), "verdict": "fraud", "note": "x" * (1 << 20)}
    answer = browser.post(action, data=fields, headers={"accept": "application/json"})
    assert answer.status_code == 413
    assert (
        answer.json()["error"]
        == f"this is more than {forms.LARGEST >> 10} KB, and nothing was written: shorten the note"
    )
    assert events(root) == 0


@pytest.mark.parametrize("body", [b"\xff\xfe=1", b"&".join(b"a%d=1" % number for number in range(99))])
def test_a_body_that_is_no_form_writes_nothing(browse: Open, root: Path, body: bytes) -> None:
    answer = browse().post(TAKE, content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code in (403, 409)
    assert events(root) == 0


def test_who_asks_too_often_waits(browse: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RATE", 0.001)
    monkeypatch.setattr(guard, "BURST", 5.0)
    browser = browse()
    assert [browser.get("/nothing").status_code for _ in range(6)] == [404, 404, 404, 404, 429, 429]
    assert browser.get("/static/desk.css").status_code == 200


def platform(root: Path) -> TestClient:
    groups = {"token of anna": {"analysts", "users"}, "token of rita": {"users"}}
    store = LocalStore(Settings(lake=root))
    site = Site(lambda person: store, PlatformAccess(RoleByGroup(frozenset(["analysts"])), lambda token: groups[token]))
    return TestClient(application(site), base_url="https://desk-1.example")


def of(name: str) -> dict[str, str]:
    return {"x-forwarded-email": f"{name}@example.com", "x-forwarded-access-token": f"token of {name}"}


def test_in_an_app_the_platform_says_who_it_is_and_groups_who_decides(root: Path, store: LocalStore) -> None:
    app = platform(root)
    assert "analysts decide" in app.get(CASE, headers=of("rita")).text.lower()
    page = app.get(CASE, headers=of("anna")).text
    assert "anna@example.com" in page
    fields = {"form": page.partition('name="form" value="')[2].partition('"')[0], "event_id": "0" * 32}
    same = {"origin": "https://desk-1.example", "x-forwarded-host": "desk-1.example"}
    assert app.post(TAKE, data=fields, headers=of("rita") | same).status_code == 403  # another person's form
    assert app.post(TAKE, data=fields, headers=of("anna") | same).status_code == 200
    taken = store.query("SELECT analyst FROM silver_review_events", SILVER_REVIEW_EVENTS)["analyst"].to_pylist()
    assert taken == ["anna@example.com"]


def test_in_an_app_nobody_is_let_in_whom_the_platform_does_not_name(root: Path) -> None:
    assert platform(root).get("/").status_code == 403
    assert platform(root).get("/", headers={"x-forwarded-email": "anna@example.com"}).status_code == 403


def test_a_port_that_is_taken_is_refused_in_a_line() -> None:
    with server.listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UsageError, match="give another --port"):
            server.listen("127.0.0.1", taken.getsockname()[1])
