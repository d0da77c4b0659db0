"""The deployed path compared with the laptop's: the same rows through the same commands, in one run. Run by hand.

The deployed path is Spark Connect against a stand-in that refuses what serverless compute refuses (tests/standin):
Spark's own writers, nothing cached, six settings, a process for the micro-batches of each stream. Each command runs on
two equal lots of rows: the first warms Spark up, the second is timed. The laptop's commands run in one process, too.

python -m benchmarks.deployed --rows 1000000 --work DIR
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from fraudlake import simulator
from fraudlake.cli import cli
from tests.standin.process import Workspace, running
from tests.standin.workspace import CATALOG, SCHEMA

STEPS = ("ingest", "refine", "detect", "aggregate", "train", "score")
ALERT = ("ingest", "refine", "detect")


def here(lake: Path, step: str) -> float:
    begun = time.monotonic()
    cli.main(["--lake", str(lake), step], standalone_mode=False)
    return time.monotonic() - begun


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
        for seed, rows in lots:
            for landing in (lake / "landing", workspace.landing):
                traffic = simulator.Traffic(seed=seed)
                simulator.simulate(landing / str(seed), traffic, rows=rows, file_rows=100_000)
            steps = ALERT if seed == 3 else STEPS
            seconds = {step: (here(lake, step), there(workspace, step)) for step in steps}
            if seed == 2:
                for step, (laptop, deployed) in seconds.items():
                    print(
                        f"{step}: {rows / laptop:,.0f} and {rows / deployed:,.0f} rows/s, ratio {laptop / deployed:.2f}"
                    )
            if seed == 3:
                laptop, deployed = (sum(pair[side] for pair in seconds.values()) for side in (0, 1))
                print(f"1,000 rows from landing to alert: {laptop:.1f} s and {deployed:.1f} s")


if __name__ == "__main__":
    main()
