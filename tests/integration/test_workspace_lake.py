"""A lake in a Unity Catalog schema, as far as it goes without one: another catalog's schema, over Spark Connect."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FLINK, land_flink

pytestmark = pytest.mark.stream
BAD = FLINK.parent / "bad" / "files"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the steps leave of the tutorial's file and some bad ones."""
    folder = tmp_path_factory.mktemp("workspace")
    for volume in ("landing", "checkpoints"):
        (folder / volume).mkdir()
    land_flink(folder / "landing", "tutorial/int96")
    for name in ("part-damaged-page", "part-truncated", "part-zero-bytes"):
        shutil.copy(BAD / name, folder / "landing" / name)
    program = Path(__file__).with_name("workspace_lake.py")
    command = [sys.executable, str(program), str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_every_row_goes_through_once_over_spark_connect(told: dict[str, Any]) -> None:
    assert told["session"].startswith("pyspark.sql.connect")
    status = told["status"]
    assert (status["lake"], status["gaps"]) == ("spark_catalog.fraud", [])
    assert [status[name] for name in ("landed", "bronze", "silver", "quarantine", "rejected_files")] == [
        10,
        10,
        10,
        0,
        3,
    ]
    assert told["bronze_after_another_run"] == 10


def test_the_tables_of_the_schema_hold_the_tutorials_alerts_and_account_days(told: dict[str, Any]) -> None:
    assert told["alerts"] == ["2", "4", "3"]
    assert told["daily"] == [["1", 3, 0], ["2", 2, 1], ["3", 3, 1], ["4", 2, 1]]


def test_a_file_that_auto_loader_skips_or_reads_in_part_is_rejected_with_the_reason(told: dict[str, Any]) -> None:
    names, reasons = zip(*told["rejected"], strict=True)
    assert names == ("part-damaged-page", "part-truncated", "part-zero-bytes")
    assert reasons[2] == "the file is empty (0 bytes)"
    assert all(reason.startswith("not readable as parquet") for reason in reasons[:2])
    ((path, rows),) = told["accepted"]
    assert (path.startswith("tutorial_int96/"), rows) == (True, 10)
