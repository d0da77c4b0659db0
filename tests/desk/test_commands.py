"""The commands of the review: a day's queue is built, worked through and looked back at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fraudlake.review.event_log import read_events
from tests.conftest import FraudlakeHere
from tests.desk.local import Payment, fill, open_store

PAYMENTS = [Payment("a", "1", 100.0, rules=("pair",)), *(Payment(f"o{n}", f"other {n}") for n in range(9))]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "lake")
    fill(store, PAYMENTS)
    return store.root


def test_a_queue_is_worked_through_by_commands(lake: Path, fraudlake_here: FraudlakeHere) -> None:
    def command(*arguments: str) -> Any:
        done = fraudlake_here("--lake", str(lake), "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert command("queue", "build", "--size", "3", "--explore", "0.34") == {
        "day": "2026-03-07",
        "items": 2,
        "drawn": 1,
        "is_new": True,
    }
    assert [case["case_id"] for case in command("cases")["cases"]] == ["a pair"]
    first = command("queue", "next", "--take", "--analyst", "ann")["item"]["item_id"]
    assert first == "a pair"
    second = command("queue", "next", "--analyst", "bob")["item"]["item_id"]
    command("review", "verdict", first, "fraud", "--analyst", "ann", "--note", "stolen", "--event-id", "e1")
    command("review", "verdict", first, "fraud", "--analyst", "ann", "--event-id", "e1")  # as after a kill
    command("review", "verdict", first, "genuine", "--analyst", "eve", "--correct", "--reason", "own card")
    command("review", "take", second, "--analyst", "bob")
    command("review", "release", second, "--analyst", "bob")
    items = command("queue", "list")["items"]
    assert [(item["verdict"], item["decided_by"], item["holder"]) for item in items] == [
        ("genuine", "eve", None),
        (None, None, None),
    ]
    decided = command("decisions")["decisions"]
    assert [(row["kind"], row["analyst"], row["verdict"], row["note"]) for row in decided] == [
        ("verdict", "ann", "fraud", "stolen"),
        ("corrected", "eve", "genuine", None),
    ]
    assert [row["kind"] for row in command("decisions", "--all", "--analyst", "bob")["decisions"]] == [
        "taken",
        "released",
    ]


def test_a_name_with_a_line_break_makes_no_row_of_a_listing(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    forged = "9\n   2  drawn  account 8\tfraud"
    store = open_store(tmp_path / "lake")
    fill(store, [Payment("a", forged, 100.0, rules=("pair",))])

    def lines(*arguments: str) -> list[str]:
        done = fraudlake_here("--lake", str(store.root), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    lines("queue", "build")
    lines("review", "verdict", "a pair", "fraud", "--analyst", "ann")
    for listing in (["queue", "list"], ["cases"], ["decisions"]):
        (line,) = lines(*listing)
        assert r"account 9\n   2  drawn  account 8\tfraud" in line


def test_a_case_is_opened_merged_and_separated_by_commands(lake: Path, fraudlake_here: FraudlakeHere) -> None:
    def command(*arguments: str) -> Any:
        done = fraudlake_here("--lake", str(lake), "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    given = ("open", "1", "--payment", "a", "--reason", "she called", "--analyst", "ann", "--event-id", "e1")
    opened = command("review", *given)
    assert command("review", *given) == opened  # as after a kill
    assert (opened["kind"], opened["transaction_ids"]) == ("opened", ["a"])
    name = opened["item_id"]
    assert [item["item_id"] for item in command("queue", "list")["items"]] == [name]
    assert command("queue", "next")["item"]["item_id"] == name
    merged = command("review", "merge", "a pair", name, "--reason", "one thief")
    assert (merged["item_id"], merged["merged_into"]) == ("a pair", name)
    refused = fraudlake_here("--lake", str(lake), "review", "take", "a pair")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"fraudlake: a pair is part of case {name} now: name that one\n",
    )
    assert command("review", "separate", "a pair", "--reason", "two")["kind"] == "separated"
    assert command("review", "take", "a pair")["item_id"] == "a pair"
    events = command("decisions", "--all")["decisions"]
    assert [row["kind"] for row in events] == ["opened", "merged", "separated", "taken"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("queue", "list"), "has no review queue yet: run 'fraudlake queue build'"),
        (("review", "take", "nothing"), "has no case, alert or drawn account 'nothing'"),
        (("review", "release", "a pair"), "nobody holds a pair"),
        (
            ("review", "verdict", "a pair", "fraud", "--note", "x" * 30_000),
            "the note has 30,000 characters, and at most 20,000",
        ),
        (("queue", "build", "--day", "soon"), "'soon' is not a day"),
    ],
)
def test_what_cannot_be_done_is_a_line(
    lake: Path, fraudlake_here: FraudlakeHere, arguments: tuple[str, ...], message: str
) -> None:
    done = fraudlake_here("--lake", str(lake), *arguments)

    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nobody_takes_the_next_item_without_a_name(lake: Path, fraudlake_here: FraudlakeHere) -> None:
    fraudlake_here("--lake", str(lake), "queue", "build")

    done = fraudlake_here("--lake", str(lake), "queue", "next", "--take", "--analyst", " ")

    assert (done.returncode, done.stderr) == (2, "fraudlake: no analyst is named: give --analyst\n")


def test_of_several_items_each_is_allowed_or_refused_on_its_own(lake: Path, fraudlake_here: FraudlakeHere) -> None:
    fill(open_store(lake), [Payment("b", "2", 50.0, rules=("pair",)), Payment("c", "3", 5.0, rules=("pair",))])

    def review(*arguments: str) -> Any:
        return fraudlake_here("--lake", str(lake), "--json", "review", *arguments)

    assert review("take", "b pair", "--analyst", "bob").returncode == 0
    done = review("verdict", "a pair", "b pair", "gone", "c pair", "fraud", "--analyst", "ann", "--event-id", "f")
    assert done.returncode == 1 and "2 of 4 items not done" in done.stderr
    again = review("verdict", "a pair", "b pair", "gone", "c pair", "fraud", "--analyst", "ann", "--event-id", "f")
    assert again.stdout == done.stdout
    said = json.loads(done.stdout)["items"]
    assert [(row["item"], row["event"] and row["event"]["fraud_amount"]) for row in said] == [
        ("a pair", 100.0),
        ("b pair", None),
        ("gone", None),
        ("c pair", 5.0),
    ]
    assert said[1]["refused"].startswith("bob holds b pair until") and "'gone'" in said[2]["refused"]
    assert [event.item_id for event in read_events(open_store(lake))] == ["b pair", "a pair", "c pair"]
    assert review("note", "a pair", "c pair", "seen", "--analyst", "ann").returncode == 0
    refused = review("verdict", "a pair", "c pair", "fraud", "--payment", "a")
    assert refused.returncode == 2 and "--payment names payments of one item" in refused.stderr


def test_a_file_is_attached_by_a_command(lake: Path, fraudlake_here: FraudlakeHere, tmp_path: Path) -> None:
    file = tmp_path / "answer.pdf"
    file.write_bytes(b"the bank answered")
    command = ("--lake", str(lake), "review", "attach", "a pair", str(file), "--analyst", "ann", "--event-id", "e")
    for _ in range(2):
        assert fraudlake_here(*command, "--note", "by post").stdout == (
            "ann has attached answer.pdf (17 bytes) to a pair\n"
        )
    (event,) = read_events(open_store(lake))
    assert (event.kind, event.note) == ("attached", "by post")
    assert (lake / "attachments" / str(event.file_hash)).read_bytes() == b"the bank answered"
    file.write_bytes(b"")
    assert "the file is empty" in fraudlake_here(*command).stderr
    file.unlink()
    assert f"{file}: No such file or directory" in fraudlake_here(*command).stderr
