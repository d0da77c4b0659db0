from __future__ import annotations

import os
from pathlib import Path

from fraudlake.sources import landing, links


def land(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def listed(folder: Path) -> list[str]:
    return sorted(file.source for file in landing.files(str(folder)))


def other_names(folder: Path, *known: str) -> dict[str, str]:
    files = list(landing.files(str(folder)))
    return links.other_names(files, iter(files), str(folder), known)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    land(tmp_path / "in" / "10" / "part-0")
    land(tmp_path / "out" / "part-1")
    for name, target in {"latest": "10", "loop": ".", "10/up": "..", "10/../linked": "../out"}.items():
        (tmp_path / "in" / name).symlink_to(target)
    (tmp_path / "out" / "back").symlink_to("../in")
    assert listed(tmp_path / "in") == ["10/part-0", "latest/part-0", "linked/part-1"]
    whole = str(tmp_path / "in")
    spark = [f"{whole}/{name}" for name in ("part", "latest/part", "loop/part", "10/up/10/part", "linked/back/x/part")]
    assert [*links.outside_cycles(spark, whole)] == spark[:2]
    assert sorted(path.name for path in links.cycles(str(tmp_path / "in"))) == ["back", "loop", "up", "up"]


def test_a_link_is_another_name_of_the_file_without_links(tmp_path: Path) -> None:
    land(tmp_path / "20" / "part-0")
    land(tmp_path / "20" / "part-1")
    (tmp_path / "00-latest").symlink_to("20")
    (tmp_path / "00-part").symlink_to("20/part-0")
    assert other_names(tmp_path) == {
        "00-latest/part-0": "20/part-0",
        "00-latest/part-1": "20/part-1",
        "00-part": "20/part-0",
    }


def test_a_hard_link_is_another_name_of_the_name_that_was_read(tmp_path: Path) -> None:
    land(tmp_path / "part-1")
    os.link(tmp_path / "part-1", tmp_path / "part-0")
    assert other_names(tmp_path) == {"part-1": "part-0"}
    assert other_names(tmp_path, "part-1") == {"part-0": "part-1"}


def test_links_to_files_elsewhere_are_read_once(tmp_path: Path) -> None:
    land(tmp_path / "out" / "part-0")
    os.link(tmp_path / "out" / "part-0", tmp_path / "out" / "copy")
    (tmp_path / "in").mkdir()
    for name in ("b", "a"):
        (tmp_path / "in" / name).symlink_to("../out")
    assert other_names(tmp_path / "in") == {
        "a/part-0": "a/copy",
        "b/copy": "a/copy",
        "b/part-0": "a/copy",
    }


def test_a_landing_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    land(tmp_path / "real" / "10" / "part-0")
    (tmp_path / "in").symlink_to("real")
    assert other_names(tmp_path / "in") == {}
