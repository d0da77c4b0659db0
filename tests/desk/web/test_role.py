"""Role: who reads, decides or leads, by the groups of a proxy or a file of people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fraudlake.approvals import log
from fraudlake.errors import UsageError
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings, load
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk.web import server
from fraudlake_desk.web.application import application
from fraudlake_desk.web.errors import RefusedError
from fraudlake_desk.web.role import Role, RoleByFile
from tests.desk.web.conftest import Browser

CASE = "/items/alert2"
TAKE = f"{CASE}/take"
PROXY = {"user_header": "X-User", "trusted_proxies": "127.0.0.1", "public_url": "https://desk.example"}


def team(root: Path, most: Role = Role.LEAD, **settings: Any) -> Browser:
    """A browser behind the proxy of a desk with settings."""
    site = server.site_of_team(LocalStore(load(lake=root, **PROXY, **settings)), most, "127.0.0.1")
    return Browser(application(site), base_url="https://desk.example", client=("127.0.0.1", 50_000))


def decides(browser: Browser, **headers: str) -> bool:
    """Whether the page of a case has the forms of who decides, and the desk takes them."""
    page = browser.get(CASE, headers=headers)
    assert page.status_code == 200, page.text
    has_form = f'action="{TAKE}"' in page.text
    token = page.text.partition('name="form-token" content="')[2].partition('"')[0]
    taken = browser.post(TAKE, data={"form": token, "event_id": "0" * 32}, headers=headers, follow_redirects=False)
    assert taken.status_code == (303 if has_form else 403)
    return has_form


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("analysts", True),
        ("staff, analysts", True),
        ("staff,leads", True),
        ("staff", False),
        ("analysts of cards", False),
        ("ANALYSTS", False),
        ("", False),
        (None, False),
    ],
)
def test_groups_of_the_proxy_say_who_decides(root: Path, groups: str | None, expected: bool) -> None:
    browser = team(root, groups_header="X-Groups", analyst_groups="analysts", lead_groups="leads")
    headers = {"x-user": "anna"} | ({} if groups is None else {"x-groups": groups})
    assert decides(browser, **headers) is expected


def test_groups_that_the_proxy_has_not_replaced_let_nobody_in(root: Path) -> None:
    browser = team(root, groups_header="X-Groups", analyst_groups="analysts")
    answer = browser.get("/", headers=[(b"x-user", b"anna"), (b"x-groups", b"analysts"), (b"x-groups", b"staff")])
    assert answer.status_code == 403 and "it must set the header X-Groups, once" in answer.text


def test_groups_count_from_a_trusted_proxy_alone(root: Path) -> None:
    browser = team(root, groups_header="X-Groups", analyst_groups="analysts")
    other = Browser(browser.app, base_url="https://desk.example", client=("10.0.0.7", 50_000))
    assert other.get("/", headers={"x-user": "anna", "x-groups": "analysts"}).status_code == 403


def test_a_reader_who_is_a_rule_author_withdraws_what_they_asked_for(root: Path) -> None:
    browser = team(root, groups_header="X-Groups", analyst_groups="analysts", rule_author_groups="authors")
    store = LocalStore(Settings(lake=root))
    log.ask(store, log.Proposal("rules", "rules: dear", {}, {}, {"names": [], "rows": []}), "arno", "fewer")
    headers = {"x-user": "arno", "x-groups": "authors"}
    page = browser.get("/approvals", headers=headers).text
    assert 'action="/approvals/1/withdraw"' in page and 'action="/approvals/1/approve"' not in page
    token = page.partition('name="form-token" content="')[2].partition('"')[0]
    form = {"form": token, "reason": "a mistake"}
    without = browser.post("/approvals/1/withdraw", data=form, headers={"x-user": "arno", "x-groups": "staff"})
    assert without.status_code == 403 and log.find(store, 1).status == "waiting"
    browser.post("/approvals/1/withdraw", data=form, headers=headers)
    assert log.find(store, 1).status == "withdrawn"


def test_a_team_without_roles_decides_as_before(root: Path) -> None:
    assert decides(team(root), **{"x-user": "anna"})


def test_a_read_only_desk_has_readers_alone(root: Path) -> None:
    browser = team(root, Role.READER, groups_header="X-Groups", analyst_groups="analysts")
    assert not decides(browser, **{"x-user": "anna", "x-groups": "analysts"})


@pytest.fixture
def people(tmp_path: Path) -> Path:
    file = tmp_path / "people.toml"
    file.write_text('leads = ["lena"]\nanalysts = ["anna", "Jürgen Groß"]\nreaders = ["rita"]\n')
    return file


def test_a_file_says_who_is_what(people: Path) -> None:
    roles = RoleByFile(people)
    assert [roles.role(name, ()) for name in ("rita", "anna", "Jürgen Groß", "lena")] == [
        Role.READER,
        Role.ANALYST,
        Role.ANALYST,
        Role.LEAD,
    ]
    with pytest.raises(
        RefusedError, match=r"^eve is in none of the lists of people\.toml: ask the person who runs the desk$"
    ):
        roles.role("eve", ())


def test_the_desk_asks_the_file_who_is_what(root: Path, people: Path) -> None:
    browser = team(root, people=people)
    assert decides(browser, **{"x-user": "lena"})
    assert not decides(browser, **{"x-user": "rita"})
    answer = browser.get("/", headers={"x-user": "eve"})
    assert answer.status_code == 403 and "eve is in none of the lists" in answer.text
    assert browser.get("/static/desk.css", headers={"x-user": "eve"}).status_code == 200


def test_a_file_that_changes_counts_from_the_next_request(root: Path, people: Path) -> None:
    browser = team(root, people=people)
    assert not decides(browser, **{"x-user": "rita"})
    people.write_text('analysts = ["rita"]\n')
    assert decides(browser, **{"x-user": "rita"})
    assert browser.get("/", headers={"x-user": "anna"}).status_code == 403


def test_a_file_that_is_broken_lets_nobody_in_until_it_is_corrected(root: Path, people: Path) -> None:
    browser, before = team(root, people=people), people.read_text()
    for broken in ('analysts = ["anna"', None):
        people.unlink() if broken is None else people.write_text(broken)
        answer = browser.get("/", headers={"x-user": "anna"})
        assert answer.status_code == 403 and "nobody is let in until this is corrected" in answer.text
    people.write_text(before)
    assert browser.get("/", headers={"x-user": "anna"}).status_code == 200


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('analysts = "anna"', "analysts must be a list of names"),
        ("leads = [1]", "leads must be a list of names"),
        ('readers = [" "]', "readers must be a list of names"),
        ('bosses = ["anna"]', "the lists are readers, analysts, leads, rule_authors and approvers, not bosses"),
        ('analysts = ["anna"]\nleads = ["anna"]', "'anna' is listed twice"),
        ("analysts = [", "Unexpected end|Invalid value|Unclosed array"),
    ],
)
def test_a_file_of_something_else_is_refused_in_a_line(people: Path, content: str, line: str) -> None:
    people.write_text(content)
    with pytest.raises(UsageError, match=rf"people\.toml: .*({line})") as refused:
        RoleByFile(people)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"groups_header": "X-Groups"}, "--groups-header needs --analyst-groups or --lead-groups"),
        ({"analyst_groups": "analysts"}, "--groups-header needs --analyst-groups or --lead-groups, and these need it"),
        ({"people": "p.toml", "groups_header": "X-Groups"}, "--people names who is what, and so do the proxy's groups"),
        ({"people": "missing.toml"}, "missing.toml: .*no such file"),
    ],
)
def test_roles_that_do_not_fit_together_are_refused(root: Path, given: dict[str, str], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        server.site_of_team(LocalStore(load(lake=root, **PROXY, **given)), Role.LEAD, "127.0.0.1")


@pytest.mark.parametrize("groups", ["", "a,,b", " , "])
def test_groups_without_a_name_are_refused(groups: str) -> None:
    with pytest.raises(UsageError, match="must be names of groups"):
        load(analyst_groups=groups)


def test_a_reader_has_written_nothing(root: Path) -> None:
    assert not decides(team(root, groups_header="X-Groups", lead_groups="leads"), **{"x-user": "rita"})
    rows = LocalStore(Settings(lake=root)).query("SELECT 1 FROM silver_review_events", SILVER_REVIEW_EVENTS)
    assert len(rows) == 0
