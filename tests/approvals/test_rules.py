"""Rules in a lake that needs two people: drafts are free, and what streams evaluate changes when another agrees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.approvals import log
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import Settings
from fraudlake_desk import rules
from tests.approvals.conftest import Command
from tests.conftest import FraudlakeHere
from tests.desk import small_lake

BUSY = '[[rules]]\nkind = "threshold"\nname = "busy"\naggregate = "count"\nwindow = "60 s"\nabove = {}\n'


def statuses(root: Path) -> dict[str, str]:
    """The status of each version of each rule."""
    present, _ = rules.read(LocalStore(Settings(lake=root)))
    return {str(version): version.status for version in present.versions}


@pytest.fixture
def busy(root: Path, tmp_path: Path, command: Command) -> Path:
    """The file of a draft, which needs nobody's approval."""
    file = tmp_path / "busy.toml"
    file.write_text(BUSY.format(3))
    assert command("ann", "rules", "add", str(file))["changes"][0]["status"] == "draft"
    return file


def test_a_draft_becomes_live_when_another_person_agrees(root: Path, busy: Path, command: Command) -> None:
    refused = command("ann", "rules", "promote", "busy", "--reason", "many at once")
    assert "rules: busy: request 1 waits for a second person, and nothing has changed" in refused
    assert statuses(root)["busy version 1"] == "draft"
    assert "request 1 is by ann: another person must decide" in command(
        "ann", "approvals", "approve", "1", "--reason", "mine"
    )
    shown = command("bob", "approvals", "show", "1")
    assert (shown["before"]["busy version 1"]["status"], shown["after"]["busy version 1"]["status"]) == (
        "draft",
        "live",
    )
    assert command("bob", "approvals", "approve", "1", "--reason", "seen")["status"] == "carried out"
    assert statuses(root) == {"small_then_large version 1": "live", "busy version 1": "live"}
    (change,) = [one for one in rules.changes(LocalStore(Settings(lake=root)), "busy") if one.status == "live"]
    assert (change.author, change.reason) == ("ann", "many at once")


def test_requests_are_listed_and_shown_as_text(
    root: Path, busy: Path, command: Command, fraudlake_here: FraudlakeHere
) -> None:
    assert command("bob", "approvals", "list") == {"requests": []}
    command("ann", "rules", "promote", "busy", "--reason", "many at once")
    listed = fraudlake_here("--lake", str(root), "approvals", "list").stdout
    assert re.fullmatch(r"   1  waiting      rules: busy; ann, \d{4}-\d\d-\d\d \d\d:\d\d: many at once\n", listed)
    assert command("bob", "approvals", "reject", "1", "--reason", "too many")["status"] == "rejected"
    assert command("bob", "approvals", "list") == {"requests": []}
    (rejected,) = command("bob", "approvals", "list", "--all")["requests"]
    assert (rejected["status"], rejected["followed"][0]["person"]) == ("rejected", "bob")
    shown = fraudlake_here("--lake", str(root), "approvals", "show", "1").stdout.splitlines()
    assert shown[1] == "busy version 1" and shown[-1].endswith("rejected by bob: too many")
    same = "  stays   above 3.0, aggregate count, column amount, kind threshold, name busy, window 60 s"
    assert shown[2:5] == ["  before  status draft", "  after   status live", same]
    assert "there is no request 9: 'fraudlake approvals list --all'" in command("bob", "approvals", "show", "9")


def test_a_version_that_has_changed_since_is_not_approved(root: Path, busy: Path, command: Command) -> None:
    command("ann", "rules", "promote", "busy", "--reason", "many at once")
    busy.write_text(BUSY.format(9))
    command("eve", "rules", "add", str(busy))
    refused = command("bob", "approvals", "approve", "1", "--reason", "seen")
    assert "request 1 was asked when busy version 2 was missing, and now it is status draft" in refused
    assert statuses(root)["busy version 1"] == "draft"


def test_a_refused_request_says_which_fields_have_changed(busy: Path, command: Command) -> None:
    for reason in ("many at once", "again"):
        command("ann", "rules", "promote", "busy", "--reason", reason)
    command("bob", "approvals", "approve", "1", "--reason", "seen")
    refused = command("bob", "approvals", "approve", "2", "--reason", "seen")
    assert "request 2 was asked when busy version 1 was status draft, and now it is status live: look" in refused


@pytest.mark.parametrize("name", ["shadow", "promote", "retire"])
def test_whatever_changes_what_is_evaluated_waits(root: Path, busy: Path, command: Command, name: str) -> None:
    before = statuses(root)
    rule = "small_then_large" if name == "retire" else "busy"
    assert "waits for a second person" in command("ann", "rules", name, rule, "--reason", "why")
    assert statuses(root) == before


def test_a_whole_file_is_approved_at_once(root: Path, busy: Path, command: Command) -> None:
    assert "rules: busy, small_then_large: request 1 waits" in command(
        "ann", "rules", "apply", str(busy), "--yes", "--reason", "ours alone"
    )
    command("bob", "approvals", "approve", "1", "--reason", "seen")
    assert statuses(root) == {"small_then_large version 1": "retired", "busy version 1": "live"}


def test_nobody_acts_under_another_name_or_without_a_reason(root: Path, busy: Path, command: Command) -> None:
    refused = command("ann", "rules", "promote", "busy", "--author", "bob", "--reason", "x")
    assert "bob is not signed in, ann is: with two keys, nobody acts under another name" in refused
    assert "give a reason (--reason)" in command("ann", "rules", "promote", "busy")
    assert log.read(LocalStore(Settings(lake=root))) == {}


def test_the_environment_does_not_say_who_somebody_is(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.user_name()
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody")
    assert store.user_name() == before != "somebody"


def test_a_tampered_request_is_not_carried_out(root: Path, busy: Path, command: Command, store: LocalStore) -> None:
    command("ann", "rules", "promote", "busy", "--reason", "many at once")
    rows = store.rows(tables.SILVER_APPROVAL_EVENTS).to_pylist()
    rows[0]["arguments"] = rows[0]["arguments"].replace("3.0", "1.0")
    table = tables.SILVER_APPROVAL_EVENTS
    store.replace(table, small_rows(rows), "number = 1")
    refused = command("bob", "approvals", "approve", "1", "--reason", "seen")
    assert "event 1 does not fit the hashes" in refused and "nothing is carried out" in refused
    assert statuses(root)["busy version 1"] == "draft" and len(log.read_events(store)) == 1


def small_rows(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, tables.SILVER_APPROVAL_EVENTS.schema)


def test_one_key_asks_nobody(tmp_path: Path, command: Command, busy: Path, fraudlake_here: Any) -> None:
    other = small_lake.make(tmp_path / "other")
    for arguments in (("add", str(busy)), ("promote", "busy", "--author", "whoever")):
        assert fraudlake_here("--lake", str(other), "rules", *arguments).returncode == 0
    assert statuses(other)["busy version 1"] == "live"
    assert log.read(LocalStore(Settings(lake=other))) == {}


@pytest.mark.parametrize("variable", [{"FRAUDLAKE_APPROVALS": "1"}, {}])
def test_the_lake_says_how_many_must_agree_and_lowering_that_needs_a_second_person(
    root: Path, command: Command, busy: Path, fraudlake_here: Any, variable: dict[str, str]
) -> None:
    done = fraudlake_here("--lake", str(root), "rules", "promote", "busy", "--reason", "x", **variable)
    assert done.returncode != 0 and statuses(root)["busy version 1"] == "draft"
    assert "add --yes to ask for it" in command("ann", "define", "--approvals", "1")
    refused = command("ann", "define", "--approvals", "1", "--yes", "--reason", "we are few")
    assert "approvals: request" in refused and "waits for a second person" in refused
    assert command("ann", "define")["definition"]["approvals"] == 2


def test_one_key_is_enough_again_when_a_second_person_agrees(root: Path, busy: Path, command: Command) -> None:
    command("ann", "define", "--approvals", "1", "--yes", "--reason", "we are few")
    assert command("bob", "approvals", "approve", "1", "--reason", "so it is")["status"] == "carried out"
    assert command("ann", "define")["definition"]["approvals"] == 1
    assert command("ann", "rules", "promote", "busy")["changes"][0]["status"] == "live"
