from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fraudlake.sources import landing


@pytest.mark.parametrize("name", ["part-1-0", "2026-03-07--00/part-1-0.parquet", "day=2026-03-07/hour=00/part-1-0-0"])
def test_names_with_and_without_a_suffix_are_finished(name: str) -> None:
    assert landing.is_finished(name)


@pytest.mark.parametrize(
    "name",
    [
        ".part-1-0.inprogress.7",
        "part-1-0.inprogress.7",
        "_SUCCESS",
        "day=1/_SUCCESS",
        "_temporary/part-1-0",
        ".staging/part-1-0",
        "part-1-0._COPYING_",
    ],
)
def test_unfinished_files_are_recognised_by_their_names(name: str) -> None:
    assert not landing.is_finished(name)


@pytest.mark.parametrize("path", ["/in/a b", "/in/a%20b", "/in/#+=", "/in/zahlung-ü", "/in/dt=2026-03-07/part-0"])
def test_hadoops_name_of_a_file_is_that_of_the_operating_system(path: str) -> None:
    assert landing.local_path(f"file:{path}") == path
    assert landing.local_path(f"file://{path}") == path


def test_a_folder_is_listed_with_what_is_finished_in_it(tmp_path: Path) -> None:
    folder = tmp_path / ".hidden" / "in"  # what the landing folder itself is called does not matter
    for name in ("part-0", "day=1/part-0", "_temporary/part-0", "part-full.parquet/part-0", ".part-1.inprogress.7"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"123")
    (folder / "part-empty.parquet").mkdir()
    (folder / "2026-03-07--00").mkdir()
    sizes = {file.source: file.size for file in landing.files(str(folder))}
    assert sizes == {"part-0": 3, "day=1/part-0": 3, "part-full.parquet/part-0": 3, "part-empty.parquet": None}


def test_linked_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "part-0").write_bytes(b"1")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    assert [file.source for file in landing.files(str(tmp_path / "in"))] == ["linked/part-0"]


def test_what_is_no_file_is_listed_without_a_size(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "part-pipe")
    os.mknod(tmp_path / "part-socket", stat.S_IFSOCK)
    (tmp_path / "part-device").symlink_to("/dev/zero")
    (tmp_path / "part-linked-pipe").symlink_to("part-pipe")
    (tmp_path / "part-gone").symlink_to("nowhere")
    sizes = {file.source: file.size for file in landing.files(str(tmp_path))}
    assert sizes == dict.fromkeys(("part-pipe", "part-socket", "part-device", "part-linked-pipe"))


def test_a_file_that_is_gone_is_none(tmp_path: Path) -> None:
    assert landing.current_file(str(tmp_path / "part-0"), str(tmp_path)) is None
