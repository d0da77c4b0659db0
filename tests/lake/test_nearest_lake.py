"""Which lake a line names if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fraudlake.lake import nearest_lake


def make(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)


def make_lake(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / nearest_lake.FORMAT_FILE).write_text("{}")
    return folder


def test_of_several_beside_it_the_one_with_the_most_similar_name_is_the_nearest(tmp_path: Path) -> None:
    make_lake(tmp_path / "archive")
    meant = make_lake(tmp_path / "payments")
    assert nearest_lake.find(tmp_path / "paymnets") == meant


@pytest.mark.parametrize("inside", ["landing", "tables/silver_alerts", "not/there"])
def test_a_folder_within_a_lake_is_nearest_to_that(tmp_path: Path, inside: str) -> None:
    meant = make_lake(tmp_path / "lake")
    make_lake(tmp_path / "lake-landing")
    make(meant, "landing", "tables/silver_alerts")
    assert nearest_lake.find(meant / inside) == meant


def test_a_folder_with_a_lake_in_it_is_nearest_to_that(tmp_path: Path) -> None:
    make_lake(tmp_path / "dat")
    meant = make_lake(tmp_path / "data" / "x")
    assert nearest_lake.find(tmp_path / "data") == meant


def test_a_mistake_in_the_middle_of_a_path_is_seen(tmp_path: Path) -> None:
    meant = make_lake(tmp_path / "data" / "team" / "lake")
    assert nearest_lake.find(tmp_path / "daat" / "team" / "lake") == meant


def test_where_there_is_no_lake_around_the_line_says_what_makes_one(tmp_path: Path) -> None:
    make(tmp_path, "other")
    assert nearest_lake.missing(tmp_path / "lake") == (
        f"there is no lake in {tmp_path / 'lake'}: a command that writes makes one, such as 'fraudlake ingest'"
    )
