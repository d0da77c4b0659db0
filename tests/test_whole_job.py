"""The parts of the benchmark of the whole job: what commands use, and the table of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import whole_job
from benchmarks.usage import Usage

BUSY = """
import os, time
os.setsid()
with open("/dev/zero", "rb") as zeros:
    zeros.read(20_000_000)
while time.process_time() < 0.3:
    pass
"""
# The command ends at once; what it started goes on, in another session.
COMMAND = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]])"
MEASURED = """
import json, subprocess, sys
from dataclasses import asdict
from benchmarks.usage import measured
with measured() as usage:
    subprocess.run([sys.executable, "-c", *sys.argv[1:]], check=True)
print(json.dumps(asdict(usage)))
"""


def test_a_process_that_outlives_its_command_counts() -> None:
    program = [sys.executable, "-c", MEASURED, COMMAND, BUSY]

    ended = subprocess.run(program, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)

    usage = json.loads(ended.stdout)
    assert usage["processor"] >= 0.3
    assert usage["read"] >= 20_000_000


def test_the_table_has_medians_and_the_ratio_of_processor_time(tmp_path: Path) -> None:
    figures = whole_job.Figures(tmp_path / "figures.jsonl")
    for step in whole_job.WITHOUT_TRAINING:
        for commit, processor in (("aaa", 10.0), ("bbb", 4.0)):
            for repetition, factor in ((1, 1.0), (2, 50.0), (3, 0.1)):
                usage = Usage(2.0, processor * factor, 3_000_000, 1_000_000, 500_000_000)
                figures.usages["laptop", 5000, whole_job.INCREMENT, step, commit, repetition] = usage

    lines = list(whole_job.report(figures, ["aaa", "bbb"]))
    whole_job.draw(figures, ["aaa", "bbb"], ("laptop", 5000), tmp_path / "plot.png")

    assert "| refine | 2.0 → 2.0 | 10.0 → 4.0 | 0.40 | 3 → 3 | 1 → 1 | 500 → 500 |" in lines
    assert "| all these commands | 12.0 → 12.0 | 60.0 → 24.0 | 0.40 | 18 → 18 | 6 → 6 | 500 → 500 |" in lines
    assert "| one `run` | not measured → not measured | not measured → not measured |  |" in lines[-2]
    assert (tmp_path / "plot.png").stat().st_size
