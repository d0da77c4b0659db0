"""What-if of a rule beside a backtest of it, in seconds.

    python -m benchmarks.what_if --rows 10000000 --work DIR [--runs 2]

Rows of 20,000 accounts in 40 days go to silver_transactions of a lake in DIR, whose live rules are a threshold and a
small transaction followed by a large one. For each, the limit is moved: a backtest evaluates the changed rule, and
what-if the live one and the changed one. Each is run several times in one JVM, of which the first warms it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.entities import COLUMNS, ENTITIES, add_rows, report
from fraudlake import api
from fraudlake.lake import Lake, open_lake
from fraudlake.settings import Settings

RULES: tuple[dict[str, Any], ...] = (
    {"kind": "threshold", "name": "many", "aggregate": "count", "window": "1 day", "above": 26},
    {"kind": "small_then_large", "name": "pair", "small_below": 1.0, "large_above": 100.0, "within": "6 hours"},
)
MOVED = ({"above": 28}, {"large_above": 80.0})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    rules = json.dumps(RULES)
    lake = open_lake(
        Settings(lake=options.work / "lake", columns=COLUMNS, entities=ENTITIES, rules=rules, driver_memory="8g")
    )
    add_rows(lake, argparse.Namespace(**vars(options), terminals=20_000, hot=0.0, key_bytes=0))
    for rule, moved in zip(RULES, MOVED, strict=True):
        for run in range(options.runs):
            for name, measured in (("backtest", backtest), ("what-if", what_if)):
                report(f"{name} of {rule['name']}, run {run}", partial(measured, lake, {**rule, **moved}))


def backtest(lake: Lake, rule: dict[str, Any]) -> dict[str, Any]:
    """Return the number of alerts."""
    return {"alerts": api.backtest(lake, rule)[0].alerts}


def what_if(lake: Lake, rule: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of alerts before and after."""
    result = api.what_if(lake, rule)
    return {"before": result.before.alerts, "alerts": result.after.alerts}


if __name__ == "__main__":
    main()
