"""Rule changes: rules change at random while `detect` runs and is killed; every alert is compared with the truth.

Run by hand:

    python -m benchmarks.rule_changes --seed 1 --changes 200 --kills 20 --order event_time --work /tmp/changes

A seed gives the same rows and draws the same changes and kills; which micro-batch takes a change up depends on the
machine. The truth is plain Python over what the checkpoint says that each micro-batch read and recorded.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from tests.chaos.rule_changes import RuleChanges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--order", choices=["arrival", "event_time"], default="event_time")
    parser.add_argument("--staying", type=int, choices=[1, 2, 3], default=3, help="rules that stay for the whole run")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    run = RuleChanges((options.work / "lake").absolute(), options.seed, options.order, options.staying, report=report)
    outcome = asdict(run.run(options.changes, options.kills))
    differences = outcome.pop("differences")
    print(f"seed {options.seed}, {options.order}: {outcome}")
    print("\n".join(differences) or "no difference")
    sys.exit(1 if differences else 0)


def report(line: str) -> None:
    """Print how far the run is, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
