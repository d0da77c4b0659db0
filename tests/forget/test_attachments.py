"""Attached files of a forgotten account leave the lake; those of others stay."""

from __future__ import annotations

import os
from typing import Any

import pytest

from fraudlake.forget import attachments as forgotten
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log
from fraudlake.review.item import Item
from fraudlake_desk.review import attachments

pytestmark = pytest.mark.stream

ACCOUNT, OTHER = "ACC-4711", "ACC-0815"


def attach(store: LocalStore, account: str, content: bytes) -> str:
    item = Item(f"case {account}", f"case {account}", "account", account, account, (), frozenset({f"case {account}"}))
    event = attachments.attach(store, item, "ann", event_log.new_id(), "a.txt", content)
    assert event.file_hash is not None
    return event.file_hash


def test_files_that_only_the_account_has_go_and_others_stay_unless_they_name_it(lake: Any) -> None:
    opened = lake()
    store = LocalStore(opened.settings)
    own = attach(store, ACCOUNT, b"\x00 its own")
    shared = {attach(store, account, b"of both") for account in (ACCOUNT, OTHER)}
    kept = attach(store, OTHER, b"of the other")
    naming = attach(store, OTHER, f"as {ACCOUNT} did".encode())
    folder = opened.settings.attachments_path
    new, old = folder / "under_way", folder / "of_a_killed_process"
    new.write_bytes(b"new")
    old.write_bytes(b"old")
    os.utime(old, (0, 0))
    assert forgotten.count(opened, [ACCOUNT]) == {ACCOUNT: 2}

    for _ in range(2):  # a call that was cut is repeated
        forgotten.remove(opened, [ACCOUNT])

    assert {file.name for file in folder.iterdir()} == {*shared, kept, new.name}
    assert own not in shared and naming != kept
