"""Serverless compute and Databricks Connect offer Spark Connect only: the detector must run there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.standin.process import Workspace

pytestmark = pytest.mark.stream

PROGRAM = """
import json
from tests.integration.connect_detector import alert_pairs
print(json.dumps([type(spark).__module__, *alert_pairs(spark, {folder!r})]))
"""


@pytest.mark.long
def test_the_detector_runs_in_a_spark_connect_session(compute: Workspace, tmp_path: Path) -> None:
    ended = compute.task("-c", PROGRAM.format(folder=str(tmp_path)))

    assert ended["code"] == 0, ended["error"]
    module, *alerts = json.loads(ended["out"].splitlines()[-1])
    assert module.startswith("pyspark.sql.connect")
    assert alerts == [["t0", "t1"]]
