"""The declarative pipeline, run by open-source Spark: the tables that the jobs would have made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import SHORT_LIVED

pytestmark = [pytest.mark.stream, pytest.mark.long]


def run(folder: Path, columns: str) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).with_name("pipeline_run.py")
    return subprocess.run(
        [sys.executable, str(program), str(folder), columns],
        env={**os.environ, **SHORT_LIVED},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_a_column_of_the_lake_that_the_configuration_lacks_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, "")

    assert ended.returncode != 0
    assert "differs in kind: configure the columns that the lake has" in ended.stderr
    assert not list((tmp_path / "tables").glob("silver_*"))


def test_the_pipeline_gives_the_tutorials_alerts_and_their_aggregates(tmp_path: Path) -> None:
    ended = run(tmp_path, '{"kind": "string"}')

    assert ended.returncode == 0, ended.stderr[-3000:]
    rows = {folder.name: pq.read_table(folder).to_pylist() for folder in (tmp_path / "tables").iterdir()}
    assert [row["kind"] for row in rows["silver_transactions"]] == ["chip"] * 10
    assert [row["reasons"] for row in rows["silver_quarantine"]] == [["amount_is_positive"]]
    alerts = sorted(rows["silver_alerts"], key=lambda row: row["timestamp"])
    assert [(row["account_id"], [part["amount"] for part in row["evidence"]]) for row in alerts] == [
        ("2", [0.5, 600.0]),
        ("4", [0.1, 520.0]),
        ("3", [0.75, 800.0]),
    ]
    daily = {row["account_id"]: row["alerts"] for row in rows["gold_account_daily"]}
    assert daily == {"1": 0, "2": 1, "3": 1, "4": 1}
    [agreement] = rows["gold_detector_agreement"]
    assert (agreement["both"], agreement["only_flink"], agreement["only_spark"]) == (3, 0, 0)
