"""A file with many keys for a list, in a lake that needs two people: it has no effect until another person agrees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fraudlake import tables
from fraudlake.detection import list_entries
from fraudlake.lake.local_store import LocalStore
from fraudlake_desk import lists
from tests.approvals.conftest import Command

UNTIL = str(datetime.now(UTC).date() + timedelta(days=30))
MANY = lists.ALONE + 1


def file_of(folder: Path, keys: int) -> str:
    file = folder / f"{keys}.csv"
    file.write_text("key\n" + "".join(f"K{number}\n" for number in range(keys)))
    return str(file)


def loading(file: str, reason: str = "ticket 4712") -> tuple[str, ...]:
    return ("lists", "load", "mules", file, "--of", "account", "--until", UNTIL, "--reason", reason)


def test_many_keys_are_on_the_list_when_another_person_agrees(
    store: LocalStore, command: Command, tmp_path: Path
) -> None:
    file = file_of(tmp_path, MANY)
    refused = command("ann", *loading(file))
    assert f"{MANY} keys of the list mules until {UNTIL}: request 1 waits for a second person" in refused
    assert "request 1 waits" in command("ann", *loading(file))  # asked again, it is the same request and the same rows
    assert len(store.rows(tables.SILVER_LIST_ENTRIES)) == MANY
    assert list_entries.read(store) == [] and command("ann", "lists", "list") == {"lists": []}
    assert "request 1 is by ann" in command("ann", "approvals", "approve", "1", "--reason", "mine")
    assert list_entries.read(store) == []
    assert command("bob", "approvals", "approve", "1", "--reason", "seen")["status"] == "carried out"
    entries = list_entries.read(store)
    assert {(one.author, one.reason, str(one.ends_at.date())) for one in entries} == {("ann", "ticket 4712", UNTIL)}
    assert sorted(one.entity_key for one in entries) == sorted(f"K{number}" for number in range(MANY))
    assert len({one.entry_id for one in entries}) == MANY
    (listed,) = command("ann", "lists", "list")["lists"]
    assert (listed["open"], listed["ended"]) == (MANY, 0)
    assert command("ann", *loading(file))["present"] == MANY


def test_a_request_whose_keys_came_onto_the_list_meanwhile_is_refused(
    store: LocalStore, command: Command, tmp_path: Path
) -> None:
    command("ann", *loading(file_of(tmp_path, MANY)))
    command("bob", "lists", "add", "mules", "K7", "--of", "account", "--until", UNTIL, "--reason", "seen")
    refused = command("bob", "approvals", "approve", "1", "--reason", "seen")
    assert "request 1 was asked when keys was 0, and now it is 1" in refused
    assert [one.entity_key for one in list_entries.read(store)] == ["K7"]


def test_few_keys_need_nobody(store: LocalStore, command: Command, tmp_path: Path) -> None:
    assert command("ann", *loading(file_of(tmp_path, lists.ALONE)))["added"] == lists.ALONE
    assert len(list_entries.read(store)) == lists.ALONE
