"""Java that has no memory left ends, instead of leaving its Python waiting for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
from pathlib import Path
from pyspark import SparkContext
from fraudlake.lake import session
from fraudlake.settings import Settings

spark = session.start(Settings(driver_memory="520m"), Path("spark.log"))
try:
    spark.range(0, 200_000_000, 1, 2).toArrow()
finally:
    print("exit code", SparkContext._gateway.proc.wait(60))
"""


@pytest.mark.long
def test_java_that_has_no_memory_left_ends(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    # 3 is the exit code of -XX:+ExitOnOutOfMemoryError; Spark's own, for some of its threads, is 52.
    assert ended.stdout.splitlines() == ["exit code 3"], ended.stderr
    assert "java.lang.OutOfMemoryError" in (tmp_path / "spark.log").read_text()
