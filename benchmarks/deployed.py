"""The deployed path compared with the laptop's: the same rows through the same commands, in one run. Run by hand.

The deployed path is Spark Connect against a stand-in that refuses what serverless compute refuses (tests/standin):
Spark's own writers, nothing cached, six settings, a process for the micro-batches of each stream. Each command runs on
two equal lots of rows: the first warms Spark up, the second is timed. The laptop's commands run in one process, too.
Processor time is that of all processes, to compare on a machine that does other work.

python -m benchmarks.deployed --rows 1000000 --work DIR
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import psutil

from benchmarks.usage import processor_seconds
from fraudlake_cli.commands import cli
from fraudlake_tools import simulator
from tests.standin.process import Workspace, running
from tests.standin.workspace import CATALOG, SCHEMA

STEPS = ("ingest", "refine", "detect", "aggregate", "train", "score")
ALERT = ("ingest", "refine", "detect")


def here(lake: Path, step: str, workspace: psutil.Process) -> tuple[float, float]:
    """Run a step in this process; return its seconds of wall and of processor time, without those of the workspace."""

    def processor() -> float:
        return processor_seconds() - processor_seconds(workspace)

    begun, before = time.monotonic(), processor()
    cli.main(["--lake", str(lake), step], standalone_mode=False)
    return time.monotonic() - begun, processor() - before


def there(workspace: Workspace, command: str, *parameters: str) -> float:
    landing = ["--landing", str(workspace.landing)] if command in ("ingest", "run") else []
    ended = workspace.task("--catalog", CATALOG, "--schema", SCHEMA, command, *parameters, *landing)
    assert ended["code"] == 0, ended["error"]
    return float(ended["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    (options.work / "workspace").mkdir(parents=True)
    lake = options.work / "laptop"
    lots = ((1, options.rows), (2, options.rows), (3, 1000))
    with running(options.work / "workspace") as workspace:
        process = psutil.Process(workspace.pid)
        for seed, rows in lots:
            for landing in (lake / "landing", workspace.landing):
                traffic = simulator.Traffic(seed=seed)
                simulator.simulate(landing / str(seed), traffic, rows=rows, file_rows=100_000)
            to_alerts = [0.0, 0.0]
            for step in ALERT if seed == 3 else STEPS:
                laptop, of_laptop = here(lake, step, process)
                before = processor_seconds(process)
                deployed = there(workspace, step)
                of_deployed = processor_seconds(process) - before
                to_alerts = [to_alerts[0] + laptop, to_alerts[1] + deployed]
                if seed > 1:
                    print(
                        f"{rows:,} rows, {step}: {rows / laptop:,.0f} and {rows / deployed:,.0f} rows/s, "
                        f"ratio {laptop / deployed:.2f}; "
                        f"processor {of_laptop:.1f} and {of_deployed:.1f} s, ratio {of_laptop / of_deployed:.2f}",
                        flush=True,
                    )
            if seed == 3:
                print("1,000 rows from landing to alert: {:.1f} s and {:.1f} s".format(*to_alerts))


if __name__ == "__main__":
    main()
