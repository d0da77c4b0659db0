"""Faults of the disk: a command ends with one line, and continues where it was once the disk is well again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FraudlakeHere, land_flink

pytestmark = [pytest.mark.stream, pytest.mark.long, pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")]

SIZE = "96m"


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate small disk in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder))
    except subprocess.CalledProcessError:
        pytest.skip("nothing may be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def fraudlake(spark: Any, fraudlake_here: FraudlakeHere, disk: Path) -> FraudlakeHere:
    """Run a command on the disk's lake."""
    return partial(fraudlake_here, "--lake", str(disk / "lake"))


def refused(fraudlake: FraudlakeHere, command: str, code: int) -> str:
    """The one line that a command ends with."""
    ended = fraudlake(command)
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def landed(lake: Path) -> None:
    (lake / "landing").mkdir(parents=True)
    land_flink(lake / "landing", "tutorial/int96")


def test_a_full_disk_is_one_line_and_with_room_the_run_goes_on(disk: Path, fraudlake: FraudlakeHere) -> None:
    landed(disk / "lake")
    assert fraudlake("ingest").returncode == 0
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 65_536)

    line = refused(fraudlake, "refine", 1)
    assert "No space left on device" in line

    filler.unlink()
    assert fraudlake("refine").returncode == 0
    counts = json.loads(fraudlake("--json", "status").stdout)
    assert (counts["bronze"], counts["silver"], counts["gaps"]) == (10, 10, [])


def test_a_lake_that_may_not_be_written_is_read_and_otherwise_refused_in_one_line(
    disk: Path, fraudlake: FraudlakeHere
) -> None:
    landed(disk / "lake")
    assert fraudlake("ingest").returncode == 0
    mount("-o", "remount,ro", str(disk))

    counts = json.loads(fraudlake("--json", "status").stdout)
    assert counts["bronze"] == 10
    assert "Read-only file system" in refused(fraudlake, "refine", 2)

    mount("-o", f"remount,rw,size={SIZE}", str(disk))
    assert fraudlake("refine").returncode == 0
