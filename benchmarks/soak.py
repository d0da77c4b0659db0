"""An hour's work: all streams run together while rows come and maintenance runs in parallel. Run by hand.

    python -m benchmarks.soak --minutes 60 --rate 2000 --source both --work /tmp/soak

Printed are the memory of the processes, the files of the lake and of the streams' checkpoints, the detector's state,
the waits for alerts in the first and the last sixth, and how the alerts differ from those of the oracle.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from tests.chaos.soak import Soak

HISTORY = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=2000, help="rows a second")
    parser.add_argument("--source", choices=("files", "kafka", "both"), default="both")
    parser.add_argument("--maintenance", type=float, default=5, help="minutes between two runs of optimize")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    soak = Soak(60 * options.minutes, options.rate, options.source, 60 * options.maintenance, HISTORY)
    print(json.dumps(soak.run(options.work)))


if __name__ == "__main__":
    main()
