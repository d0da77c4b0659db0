"""The approvals' page: a second person sees what changes, and decides; nobody decides on what is theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from fraudlake import tables
from fraudlake.approvals import gate, log
from fraudlake.detection import rule_table
from fraudlake.errors import FraudlakeError
from fraudlake.lake.store import Store
from fraudlake.review import event_log
from fraudlake.rules.kinds import RULE
from fraudlake.rules.rule_set import RuleVersion
from fraudlake_cli.commands import cli
from fraudlake_desk import effects, rules
from fraudlake_desk.web.access import Person
from fraudlake_desk.web.role import Role, RoleByFile, RoleByGroup
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Open, OpenStore

HOSTILE = "<script>alert('why')</script>"
PAIR = {"name": "dear", "small_below": 1.0, "large_above": 900.0, "within": "60 s"}
VERDICT = "/items/alert0/verdict"


@pytest.fixture
def root(root: Path) -> Path:
    given = {"change": 2, "setting": "approvals", "value": "2", "author": "ann", "changed_at": small_lake.NOON}
    small_lake.write(root, tables.SILVER_DEFINITION, [given])
    return root


@pytest.fixture
def asked(open_store: OpenStore) -> int:
    """A request of ann to make a rule live."""
    store = open_store()
    added = rule_table.add_draft(store, RULE.validate_python(PAIR), "ann", None)
    rows = [{**row, "status": "live", "changed_at": None} for row in rule_table.rows_of(0, [added])]
    present = rules.read(store)[0]
    before = rule_table.described(present.versions_of("dear"))
    after = {"dear version 1": {**before["dear version 1"], "status": "live"}}
    wanted = log.Proposal("rules", f"rules: dear {HOSTILE}", before, after, {"names": ["dear"], "rows": rows})
    with pytest.raises(gate.WaitingError):
        gate.require(store, wanted, "ann", f"many {HOSTILE}")
    return 1


def status(store: OpenStore) -> str:
    return rules.read(store())[0].version_of("dear").status


def test_another_person_approves_a_rule_and_it_is_live(browse: Open, open_store: OpenStore, asked: int) -> None:
    browser = browse("bob")
    page = browser.get("/approvals").text
    assert "small_below 1.0" in text_of(page) and HOSTILE not in page
    page = browser.submit("/approvals", f"/approvals/{asked}/approve", reason="the backtest is right")
    assert "Request 1 is carried out." in page and "approved by bob: the backtest is right" in text_of(page)
    assert status(open_store) == "live"


def test_nobody_approves_their_own_and_the_author_withdraws(browse: Open, open_store: OpenStore, asked: int) -> None:
    browser = browse("Ann")
    page = browser.get("/approvals").text
    assert "/approvals/1/approve" not in page and "/approvals/1/reject" not in page
    fields = browser.form("/approvals", "/approvals/1/withdraw")
    refused = browser.post("/approvals/1/approve", data={**fields, "reason": "mine"})
    assert refused.status_code == 409 and "request 1 is by ann: another person must decide" in refused.text
    assert status(open_store) == "draft"
    assert "Request 1 is withdrawn." in browser.submit("/approvals", "/approvals/1/withdraw", reason="a mistake")


def test_a_reader_sees_requests_and_cannot_decide(browse: Open, open_store: OpenStore, asked: int) -> None:
    browser = browse("rita", Role.READER)
    page = browser.get("/approvals").text
    assert "rules: dear" in page and "/approvals/1/approve" not in page
    token = page.partition('name="form-token" content="')[2].partition('"')[0]
    for action in ("approve", "reject", "withdraw"):
        assert browser.post(f"/approvals/1/{action}", data={"form": token, "reason": "x"}).status_code == 403
    assert len(log.read_events(open_store())) == 1


@pytest.mark.parametrize("number", ["1" * 5_000, "²"])
def test_what_is_no_number_of_a_request_is_refused(browse: Open, number: str) -> None:
    browser = browse("bob")
    page = browser.get("/approvals").text
    token = page.partition('name="form-token" content="')[2].partition('"')[0]
    answers = [
        browser.get(f"/approvals?done={number}"),
        browser.post(f"/approvals/{number}/approve", data={"form": token, "reason": "x"}),
    ]
    for answer in answers:
        assert answer.status_code == 409 and "give the number of a request" in answer.text


def test_a_rejected_request_changes_nothing(browse: Open, open_store: OpenStore, asked: int) -> None:
    page = browse("bob").submit("/approvals", "/approvals/1/reject", reason="too many alerts")
    assert "Request 1 is rejected." in page and status(open_store) == "draft"


@pytest.mark.parametrize(
    ("change", "after"),
    [("1 retired", ["retired", "draft"]), ("2 live", ["retired", "live"]), ("2 shadow", ["live", "shadow"])],
)
def test_a_rule_author_asks_at_the_desk_and_another_person_agrees(
    browse: Open, open_store: OpenStore, change: str, after: list[str]
) -> None:
    name = "small_then_large"
    ann, bob = browse("ann"), browse("bob")
    ann.submit(f"/rules/{name}", f"/rules/{name}/draft", small_below="1", large_above="900")
    page = text_of(ann.get(f"/rules/{name}").text)
    assert "run version 2 in the shadow make version 2 live run version 1 in the shadow only retire version 1" in page
    asked = ann.submit(f"/rules/{name}", f"/rules/{name}/ask", change=change, reason="fewer false alarms")
    assert "Request 1 is waiting." in asked and "fewer false alarms" in asked

    def statuses() -> list[str]:
        return [version.status for version in rules.read(open_store())[0].versions_of(name)]

    assert statuses() == ["live", "draft"]
    seen = text_of(bob.get("/approvals").text)
    if change == "1 retired":
        assert f"{name} version 1 status live status retired as before: kind small_then_large" in seen
        assert "would change" not in seen
    else:
        assert f"What {name} version 2 would change on the latest days" in seen
        trial = f"/rules/{name}/backtest?large_above=900.0"
        assert trial in bob.get("/approvals").text
        assert "alerts stay" in text_of(bob.get(trial).text)
    bob.submit("/approvals", "/approvals/1/approve", reason="seen")
    assert statuses() == after
    (*_, changed) = rules.changes(open_store(), name)
    assert (changed.author, changed.reason) == ("ann", "fewer false alarms")


@pytest.mark.parametrize(
    ("asked_for", "is_tried"),
    [
        ({"above": 8.0}, True),
        ({"above": 8.0, "window": "120 s"}, False),
        ({"above": 8.0, "aggregate": "count", "where": None}, False),  # a limit that the live rule could not have
        ({"above": 8.0, "aggregate": "unknown"}, False),  # of a later fraudlake
    ],
)
def test_a_what_if_is_offered_for_limits_only_and_the_page_opens_with_any_rule(
    browse: Open, open_store: OpenStore, asked_for: dict[str, Any], is_tried: bool
) -> None:
    store = open_store()
    live = {"kind": "threshold", "name": "busy", "aggregate": "sum", "window": "60 s", "above": 0.5}
    if "where" in asked_for:
        live |= {"aggregate": "share", "where": "amount > 1"}
    version = RuleVersion(RULE.validate_python(live), 1, "live")
    (row,) = rule_table.rows_of(rule_table.start(store).change + 1, [version])
    small_lake.write(Path(store.settings.lake), tables.SILVER_RULES, [row])
    definition = {name: given for name, given in {**live, **asked_for}.items() if given is not None}
    changed = {**row, "version": 2, "definition": json.dumps(definition)}
    wanted = log.Proposal("rules", "rules: busy", {"busy": 1}, {"busy": 2}, {"names": ["busy"], "rows": [changed]})
    with pytest.raises(gate.WaitingError):
        gate.require(open_store(), wanted, "ann", "why")
    page = browse("bob").get("/approvals")
    assert page.status_code == 200 and "rules: busy" in page.text
    assert ("/rules/busy/backtest?above=8.0" in page.text) == is_tried


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({}, "choose what to ask for"),
        ({"change": "1 draft"}, "choose what to ask for"),
        ({"change": "one live"}, "choose what to ask for"),
        ({"change": "3 live"}, "has no version 3"),
        ({"change": "1 live"}, "is live already"),
        ({"change": "1 retired", "reason": " "}, "reason"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_not_written(
    browse: Open, open_store: OpenStore, fields: dict[str, str], refusal: str
) -> None:
    page = "/rules/small_then_large"
    browser = browse("ann")
    answer = browser.post(f"{page}/ask", data={**browser.form(page, f"{page}/ask"), "reason": "why", **fields})
    assert answer.status_code == 409 and refusal in answer.text
    assert not log.read_events(open_store())


def test_only_rule_authors_ask_and_only_where_two_people_are_needed(
    browse: Open, open_store: OpenStore, made: Path, tmp_path: Path
) -> None:
    page = "/rules/small_then_large"
    fields = {**browse("ann").form(page, f"{page}/ask"), "change": "1 retired", "reason": "why"}
    reader = browse("rita", Role.READER)
    token = reader.get(page).text.partition('name="form-token" content="')[2].partition('"')[0]
    assert f"{page}/ask" not in reader.get(page).text
    assert reader.post(f"{page}/ask", data={**fields, "form": token}).status_code == 403
    gate_closed = {"change": 3, "setting": "approvals", "value": "1", "author": "ann", "changed_at": small_lake.NOON}
    small_lake.write(open_store().settings.lake, tables.SILVER_DEFINITION, [gate_closed])
    ann = browse("ann")
    assert f"{page}/ask" not in ann.get(page).text
    token = ann.get(page).text.partition('name="form-token" content="')[2].partition('"')[0]
    answer = ann.post(f"{page}/ask", data={**fields, "form": token})
    assert answer.status_code == 409 and "needs one person only" in answer.text
    assert rules.read(open_store())[0].version_of("small_then_large").status == "live"


def test_a_correction_of_the_desk_waits_and_is_approved_there(browse: Open, open_store: OpenStore) -> None:
    anna, bob = browse("anna"), browse("bob")
    anna.submit("/items/alert0", VERDICT, verdict="fraud")
    fields = bob.form("/items/alert0", VERDICT) | {"verdict": "genuine", "correct": "yes", "reason": "own card"}
    answer = bob.post(VERDICT, data=fields)
    assert answer.status_code == 409 and "A second person must agree" in answer.text
    assert [event.verdict for event in event_log.read_events(open_store())] == ["fraud"]
    anna.submit("/approvals", "/approvals/1/approve", reason="I was wrong")
    assert [event.verdict for event in event_log.read_events(open_store())] == ["fraud", "genuine"]


def test_what_needs_spark_is_approved_and_left_to_the_command(browse: Open, open_store: OpenStore) -> None:
    wanted = log.Proposal("forget", "forget A1", {"A1": "known"}, {"A1": "forgotten"}, {"accounts": ["A1"]}, ["A1"])
    with pytest.raises(gate.WaitingError):
        gate.require(open_store(), wanted, "ann", "asked for")
    page = browse("bob").submit("/approvals", "/approvals/1/approve", reason="seen")
    assert "fraudlake approvals carry-out 1" in text_of(page).replace("&#39;", "'")
    assert log.find(open_store(), 1).status == "approved"


@pytest.mark.parametrize(
    ("groups", "duties"),
    [
        ({"staff"}, set()),
        ({"analysts"}, set()),
        ({"leads"}, set()),
        ({"modellers"}, {"rule author"}),
        ({"compliance"}, {"approver"}),
        ({"analysts", "modellers", "compliance"}, {"rule author", "approver"}),
    ],
)
def test_groups_give_duties_beside_the_role(groups: set[str], duties: set[str]) -> None:
    names = [frozenset([name]) for name in ("analysts", "leads", "modellers", "compliance")]
    assert RoleByGroup(*names).duties("x", groups) == duties
    without = RoleByGroup(*names[:2]).duties("x", groups)
    assert without == ({"rule author", "approver"} if groups & {"analysts", "leads"} else set())


def test_a_file_names_who_has_a_duty_and_who_has_left_has_none(tmp_path: Path) -> None:
    file = tmp_path / "people.toml"
    lists = 'analysts = ["anna", "bob"]\nreaders = ["rita"]\n'
    file.write_text(f'{lists}approvers = ["bob", "rita"]\n')
    roles = RoleByFile(file)
    assert [roles.duties(name, ()) for name in ("anna", "bob", "rita")] == [
        {"rule author"}, {"rule author", "approver"}, {"approver"},
    ]  # fmt: skip
    file.write_text(f"{lists}approvers = []\n\n")
    assert not any("approver" in roles.duties(name, ()) for name in ("anna", "bob", "rita"))


def test_a_person_without_duties_may_nothing_beyond_the_role() -> None:
    assert not Person("x", Role.LEAD).may_approve and not Person("x", Role.LEAD).may_author


@pytest.fixture(params=["forget", "rules"])
def erased(request: pytest.FixtureRequest, root: Path, open_store: OpenStore) -> Store:
    """A lake in which a request of ann waits that named an account, which was forgotten meanwhile."""
    store = open_store()
    content = {"accounts": ["A1"]}
    wanted = log.Proposal(request.param, "forget A1", {"A1": "known"}, {"A1": "forgotten"}, content, ["A1"])
    log.ask(store, wanted, "ann", "A1 asked for it")
    (row,) = store.rows(tables.SILVER_APPROVAL_EVENTS).to_pylist()
    gone = dict.fromkeys(("subject", "reason", "before", "after", "arguments", "account_ids"))
    rows = pa.Table.from_pylist([{**row, **gone, "is_erased": True}], tables.SILVER_APPROVAL_EVENTS.schema)
    store.replace(tables.SILVER_APPROVAL_EVENTS, rows, "number = 1")
    small_lake.write(root, tables.GOLD_FORGOTTEN, [{"account_hash": "x", "finished_at": small_lake.NOON}])
    return store


def test_a_request_that_was_erased_is_not_approved_and_can_be_rejected(browse: Open, root: Path, erased: Store) -> None:
    refused = "request 1 named an account that was forgotten, and is erased: repeat the command that asked"
    browser = browse("bob")
    fields = browser.form("/approvals", "/approvals/1/approve")
    page = browser.post("/approvals/1/approve", data={**fields, "reason": "seen"})
    assert page.status_code == 409 and refused in page.text
    with pytest.raises(FraudlakeError, match=refused):
        gate.approve(erased, 1, "bob", "seen", effects.find("rules"), erased)
    assert log.find(erased, 1).status == "waiting"
    command = CliRunner().invoke(cli, ["--lake", str(root), "approvals", "reject", "1", "--reason", "gone"])
    assert command.stdout == "request 1 is rejected: erased\n"
