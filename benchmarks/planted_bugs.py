"""Planted bugs: runs the harness once with each of them, to see that it finds them.

Run by hand:

    python -m benchmarks.planted_bugs --work /tmp/planted

Prints for each bug what the harness found, and ends with exit code 1 if it missed one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from tests.chaos import harness, planted
from tests.chaos.schedule import Kill
from tests.conftest import SHORT_LIVED

SEED = 1
WITHOUT_MODEL = {"FRAUDLAKE_LABELS": "verdicts"}
"""There are none to learn from: no bug is in the model, and training takes a third of the time."""
REST = Kill(8, "ingest", "any time", 0.5, 0)
"""Lands more files, and is killed before it does anything: the run at the end reads them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("names", nargs="*", help="only these bugs")
    options = parser.parse_args()
    unnoticed = 0
    for bug in planted.BUGS:
        if options.names and bug.name not in options.names:
            continue
        begun = time.monotonic()
        signs = found(bug, options.work)
        unnoticed += not signs
        print(f"{bug.name}: {time.monotonic() - begun:.0f} s", *signs or ["NOT FOUND"], sep="\n  ", flush=True)
    sys.exit(1 if unnoticed else 0)


def found(bug: planted.Bug, work: Path) -> list[str]:
    """Run the harness on a bug; return how the tables differ. A run that fails shows no more than that it fails."""
    shutil.rmtree(work, ignore_errors=True)
    kills = [Kill(files, step, moment, 0.0, 0) for files, step, moment in bug.moments] + [REST]
    program = (sys.executable, planted.__file__, bug.name)
    report = partial(print, " ", flush=True)
    try:
        return harness.run(work, SEED, kills, report, WITHOUT_MODEL | SHORT_LIVED, program).differences
    except AssertionError as failure:
        print(f"  {failure}", flush=True)
        return []


if __name__ == "__main__":
    main()
