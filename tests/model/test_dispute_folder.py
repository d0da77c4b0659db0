"""A folder of dispute files: each is loaded once, and none stops those after it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.model import dispute_folder, verdicts
from fraudlake.settings.disputes import DisputeFolder
from tests.conftest import FraudlakeHere
from tests.model.test_verdicts import paid

Land = Callable[[str, str], Path]


@pytest.fixture
def opened(lake: Any) -> Any:
    """A lake with the payments t0, t1 and t2."""
    opened = lake()
    paid(opened, [{}, {}, {}])
    return opened


@pytest.fixture
def land(tmp_path: Path) -> Land:
    """Returns what lands a file, each a second after the one before."""
    landed: list[str] = []

    def land(name: str, content: str) -> Path:
        landed.append(name)
        file = tmp_path / "disputes" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
        os.utime(file, (1_775_000_000 + len(landed), 1_775_000_000 + len(landed)))
        return file

    return land


def load(lake: Any, folder: Path) -> list[tuple[str, int | str | None]]:
    """Load new files; return each with the number of its new verdicts, or with its error."""
    of = DisputeFolder(folder=folder, map={"transaction_id": "id"}, verdict="fraud")
    outcomes = dispute_folder.load_new(lake, of)
    return [(one.file, one.loaded.taken if one.loaded else one.error) for one in outcomes]


def disputed(lake: Any) -> list[str]:
    return sorted(
        lake.store.query(f"SELECT transaction_id FROM {tables.SILVER_VERDICTS.name}", tables.SILVER_VERDICTS)[
            "transaction_id"
        ].to_pylist()
    )


def test_a_file_is_loaded_once_and_again_when_it_changes(opened: Any, land: Land, tmp_path: Path) -> None:
    land("b.csv", "id\nt0\n")
    land("a.csv", "id\nt1\n")
    land("_c.csv", "id\nt2\n")
    (tmp_path / "disputes" / "archive").mkdir()
    assert load(opened, tmp_path / "disputes") == [("b.csv", 1), ("a.csv", 1)]
    assert load(opened, tmp_path / "disputes") == []
    land("a.csv", "id,decided_at\nt1,2026-04-06\nt2,2026-04-06\n")
    assert load(opened, tmp_path / "disputes") == [("a.csv", 2)]
    assert disputed(opened) == ["t0", "t1", "t1", "t2"]


def test_a_bad_file_is_named_each_time_and_stops_no_other(opened: Any, land: Land, tmp_path: Path) -> None:
    bad = land("a.csv", "id,decided_at\nt0,soon\n")
    land("b.csv", "id\nt1\n")
    line = (
        f"{bad}: row 2: decided_at 'soon' does not match the date pattern YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; "
        "--date-pattern"
    )
    assert load(opened, tmp_path / "disputes") == [("a.csv", f"{line} names another"), ("b.csv", 1)]
    assert load(opened, tmp_path / "disputes") == [("a.csv", f"{line} names another")]
    land("a.csv", "id\nt0\n")
    assert load(opened, tmp_path / "disputes") == [("a.csv", 1)]
    assert disputed(opened) == ["t0", "t1"]


def test_rows_without_a_payment_are_a_file_that_is_loaded_when_somebody_completes_it(
    opened: Any, land: Land, tmp_path: Path
) -> None:
    rest = verdicts.left_out_file(land("a.csv", "id\nt0\nno-such-payment\n"))
    assert load(opened, tmp_path / "disputes") == [("a.csv", 1)]
    assert rest.read_text() == '"id","problem"\n"no-such-payment","no such payment in the lake"\n'
    assert load(opened, tmp_path / "disputes") == []
    # It comes before a file that would write it anew.
    rest.write_text('"id","problem"\n"t2","it was t2"\n')
    land("a.csv", "id\nt0\nnobody\n")
    assert load(opened, tmp_path / "disputes") == [("a.csv.unmatched.csv", 1), ("a.csv", 1)]
    assert load(opened, tmp_path / "disputes") == []
    assert disputed(opened) == ["t0", "t0", "t2"]


def test_a_folder_that_is_not_there_is_a_line(opened: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"folder of disputes .*/disputes does not exist: make it, or change disputes"):
        load(opened, tmp_path / "disputes")


def test_it_is_a_step_of_a_run_that_goes_on_after_a_bad_file(
    opened: Any, land: Land, tmp_path: Path, fraudlake_here: FraudlakeHere
) -> None:
    bad = land("[a].csv", "id\n")
    land("b.csv", "id\nt1\nt9\n")
    setting = {"folder": str(tmp_path / "disputes"), "verdict": "fraud", "map": "transaction_id=id"}
    run = ("--lake", str(opened.root), "--json", "run", "--steps", "disputes,status", "--disputes")
    bad.write_text("nr\nt0\n")
    done = fraudlake_here(*run, json.dumps(setting))
    files = json.loads(done.stdout)["steps"]["disputes"]["files"]
    error = f"{bad}: has no field id, which --map names: it has nr"
    assert files == [
        {"file": "b.csv", "error": None, "taken": 1, "known": 0, "unmatched": 1, "unknown": ["t9"], "future": 0},
        {"file": "[a].csv", "error": error},
    ]
    lines = done.stderr.splitlines()
    assert f"! {error}" in lines
    assert "! b.csv: 1 row with no payment in this lake, or with several" in lines
    assert disputed(opened) == ["t1"]

    skipped = json.loads(fraudlake_here(*run, "").stdout)["steps"]["disputes"]
    assert skipped == {"files": [], "skipped": "the setting disputes names no folder"}
