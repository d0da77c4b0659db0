"""Attached files are bytes under their hash, each once, and an event that names them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import chain
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log, items
from fraudlake.review.event import Event
from fraudlake.review.item import Item
from fraudlake.review.window import Window
from fraudlake_desk.queue import people
from fraudlake_desk.review import actions, attachments
from tests.desk.local import MARCH_7, Payment, fill, open_store

CONTENT = b"\x00\xff\r\n the bank's answer \n"
HASH = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = open_store(tmp_path / "lake")
    fill(store, [Payment("a", "1", 100.0, rules=("pair",)), Payment("b", "2", 5.0, rules=("pair",))])
    return store


@pytest.fixture
def case(store: LocalStore) -> Item:
    return items.require(store, "a pair")


def attach(store: LocalStore, item: Item, event_id: str = "e", name: str = "answer.pdf") -> Event:
    return attachments.attach(store, item, "ann", event_id, name, CONTENT, "from the bank")


def files(store: LocalStore) -> list[str]:
    return sorted(path.name for path in (store.root / "attachments").iterdir())


def test_a_file_is_kept_under_its_hash_and_the_event_names_it(store: LocalStore, case: Item) -> None:
    event = attach(store, case)

    assert (event.kind, event.file_name, event.file_size, event.note) == ("attached", "answer.pdf", 24, "from the bank")
    assert files(store) == [event.file_hash] == [HASH]
    assert event_log.read_events(store) == [event] and attachments.read(store, event) == CONTENT
    assert chain.verify([event]).faults == []


def test_the_same_bytes_are_one_file_and_a_repetition_is_one_event(store: LocalStore, case: Item) -> None:
    assert attach(store, case) == attach(store, case)
    attach(store, items.require(store, "b pair"), "f", "copy.pdf")

    assert files(store) == [HASH] and len(event_log.read_events(store)) == 2


def test_a_process_that_is_killed_leaves_a_file_without_an_event_and_a_repetition_names_it(
    store: LocalStore, case: Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(event_log, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            attach(store, case)
    assert files(store) == [HASH] and event_log.read_events(store) == []

    attach(store, case)

    assert files(store) == [HASH] and len(event_log.read_events(store)) == 1


def test_a_file_that_was_changed_or_removed_is_refused(store: LocalStore, case: Item) -> None:
    event = attach(store, case)
    file = store.root / "attachments" / HASH
    file.write_bytes(CONTENT + b"!")
    with pytest.raises(FraudlakeError, match=r"answer\.pdf was changed after ann attached it: its SHA-256 is not"):
        attachments.read(store, event)
    file.unlink()
    with pytest.raises(FraudlakeError, match=r"answer\.pdf is not in .* any more"):
        attachments.read(store, event)


def test_a_file_leaves_who_holds_an_item_and_what_people_did_as_they_are(store: LocalStore, case: Item) -> None:
    lock = store.settings.review_lock
    event_log.record(store, case, "t", lambda before: actions.take(case, before, "bob", lock, "t"), MARCH_7)
    attachments.attach(store, case, "ann", "e", "a.txt", CONTENT)
    event_log.record(store, case, "v", lambda before: actions.decide(case, before, "bob", "genuine", "v"), MARCH_7)

    events = event_log.read_events(store)
    (work,) = people.count_work(events, Window(MARCH_7.date(), events[1].at.date()), events[2].at)
    assert [event.kind for event in events] == ["taken", "attached", "verdict"]
    assert work.name == "bob" and len(work.seconds) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "the file is empty"),
        ("a.txt", bytes(attachments.LARGEST + 1), "10,485,761 bytes, and at most 10,485,760 are allowed"),
        ("folder/", b"x", "the file has no name"),
        ("..", b"x", "the file has no name"),
        ("x" * 201, b"x", "has 201 letters"),
    ],
)
def test_what_cannot_be_attached_is_refused_and_leaves_nothing(
    store: LocalStore, case: Item, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        attachments.attach(store, case, "ann", "e", name, content)
    assert not (store.root / "attachments").exists() and event_log.read_events(store) == []


@pytest.mark.parametrize("name", [r"C:\Users\ann\answer.pdf", "../../answer.pdf", " answer.pdf "])
def test_folders_of_a_name_are_left_out(store: LocalStore, case: Item, name: str) -> None:
    assert attach(store, case, name=name).file_name == "answer.pdf"


def test_an_item_has_so_many_files_at_most(store: LocalStore, case: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MOST", 1)
    first = attach(store, case)
    with pytest.raises(UsageError, match="a pair has 1 files already"):
        attachments.attach(store, case, "ann", "f", "b.txt", b"other")
    assert attach(store, case) == first and files(store) == [HASH]
