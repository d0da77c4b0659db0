from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fraudlake.delivery import event
from fraudlake.delivery.destinations import file
from fraudlake.delivery.destinations.file import FileSink
from fraudlake.delivery.sink import Outcome

from .alerts import alert

EVENTS = [event.make_event(alert(number), "lake") for number in range(5)]


def lines(folder: Path) -> dict[str, list[Any]]:
    return {path.name: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()}


def test_events_roll_over_files_of_json_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_LINES", 2)
    assert FileSink(tmp_path / "out").send(EVENTS, "c-1") == [Outcome(1)] * 5
    assert lines(tmp_path / "out") == {
        "alerts-c-1-0000.jsonl": EVENTS[:2],
        "alerts-c-1-0001.jsonl": EVENTS[2:4],
        "alerts-c-1-0002.jsonl": EVENTS[4:],
    }


def test_a_repetition_writes_the_same_file(tmp_path: Path) -> None:
    for _ in range(2):
        FileSink(tmp_path).send(EVENTS, "c-1")
    assert lines(tmp_path) == {"alerts-c-1-0000.jsonl": EVENTS}


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left on device"):
        FileSink(tmp_path).send(EVENTS, "c-1")
    assert list(tmp_path.glob("*.jsonl")) == []
