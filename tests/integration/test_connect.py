"""Serverless compute and Databricks Connect offer Spark Connect only: the detector must run there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.stream


def test_the_detector_runs_in_a_spark_connect_session(tmp_path: Path) -> None:
    program = Path(__file__).with_name("connect_detector.py")
    ended = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    (module,), *alerts = json.loads(ended.stdout.splitlines()[-1])
    assert module.startswith("pyspark.sql.connect")
    assert alerts == [["t0", "t1"]]
