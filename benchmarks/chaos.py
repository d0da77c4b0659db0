"""Chaos: kills the steps of a lake at random and at chosen points, then compares every table with the truth.

Run by hand:

    python -m benchmarks.chaos --seed 7 --kills 200 --work /tmp/chaos

A seed gives the same files and the same schedule. Every 25 kills have a lake of their own. A schedule that fails is cut
down to its shortest with --shorten. FRAUDLAKE_TRIGGER=continuous and FRAUDLAKE_ORDERING=event_time in the environment
hold for the steps; the latter not with --kafka, where messages would be late after the rows of files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.chaos import harness
from tests.chaos.schedule import Kill, schedule, shortest

KILLS_OF_A_LAKE = 25
FILES = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--slowness", type=float, default=1.0, help="multiplies the seconds of kills at any time")
    parser.add_argument("--kafka", action="store_true", help="ingest a topic, too, from a broker that is away at times")
    parser.add_argument("--only", nargs="*", default=[], metavar="COMMAND", help="kill these, such as train and score")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--shorten", action="store_true", help="cut a schedule that fails down to its shortest")
    options = parser.parse_args()

    outcomes = []
    for number, begin in enumerate(range(0, options.kills, KILLS_OF_A_LAKE)):
        seed = options.seed + number
        count = min(KILLS_OF_A_LAKE, options.kills - begin)
        kills = schedule(seed, count, FILES, options.slowness, kafka=options.kafka, only=options.only)
        print(f"seed {seed}:", flush=True)
        outcome = attempt(options.work, seed, kills)
        outcomes.append(outcome)
        print("\n".join(outcome.differences) or "no difference", flush=True)
        if outcome.differences and options.shorten:
            fewest = shortest(kills, lambda fewer, seed=seed: bool(attempt(options.work, seed, fewer).differences))
            print(json.dumps([asdict(kill) for kill in fewest], indent=1))
    killed = sum((outcome.killed for outcome in outcomes), Counter())
    print(f"killed {killed.total()}: {dict(killed)}; ended before: {sum(outcome.ended_before for outcome in outcomes)}")
    print(f"differences: {sum(len(outcome.differences) for outcome in outcomes)}")
    print(f"the run after the last kill: median {statistics.median(o.seconds_to_recover for o in outcomes):.0f} s")


def attempt(work: Path, seed: int, kills: list[Kill]) -> harness.Outcome:
    """Run a schedule on a new lake in a folder; a command that fails or hangs is a difference, too."""
    shutil.rmtree(work, ignore_errors=True)
    try:
        return harness.run(work / "lake", seed, kills, report=lambda line: print(f"  {line}", flush=True))
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        return harness.Outcome(differences=[str(failure)])


if __name__ == "__main__":
    main()
