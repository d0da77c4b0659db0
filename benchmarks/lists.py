"""What lists cost the stream: rows per second of ``detect`` without a list and with lists of a million accounts.

    python -m benchmarks.lists --rows 6000000 --entries 1000000 --turns 3 --work /tmp/bench

Each turn runs the stream over the same rows under a rule without lists, and with a list that it allows or watches.
Every other account of the list is one of the payments. The figures are medians over the turns after the first.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.detector import prepared
from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.detection.list_entries import Entry
from fraudlake.lake import Lake
from fraudlake.rules.kinds import RULE
from fraudlake.settings import Settings
from fraudlake.streams import detect, stream

PAIR = {"kind": "small_then_large", "name": "pair", "small_below": 1.0, "large_above": 500.0, "within": "1 min"}
LISTS = {"none": {}, "allowed": {"allowed": {"many": "account"}}, "watched": {"watched": {"many": "account"}}}
START = datetime(2000, 1, 1, tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    settings = Settings(lake=options.work / "lake")
    lake, _ = prepared(options.work, settings, options.rows, options.accounts, rate=5000.0)
    rates: dict[str, list[float]] = {name: [] for name in LISTS}
    for turn in range(options.turns + 1):
        for name, lists in LISTS.items():
            begin(lake, lists, options.entries)
            figures = measure(lake)
            if turn:  # the first one warms the JVM
                rates[name].append(figures["rows_per_second"])
            print(json.dumps({"turn": turn, "list": name} | figures), flush=True)
    medians = {name: statistics.median(of_list) for name, of_list in rates.items()}
    print(json.dumps({"medians": medians, "ratios": {name: one / medians["none"] for name, one in medians.items()}}))


def begin(lake: Lake, lists: dict[str, dict[str, str]], entries: int) -> None:
    """Remove what a stream has left, and write the rule and, if it names one, the list."""
    shutil.rmtree(lake.checkpoint("detect").folder, ignore_errors=True)
    for table in (*tables.ALERTS, tables.SILVER_LIST_ENTRIES):
        if lake.store.has(table):
            lake.spark.sql(f"DELETE FROM {table.name}")
    rule_table.apply(lake, [(RULE.validate_python(PAIR | lists), "live")], "benchmark", None)
    if lists:
        one = Entry(
            "", "many", None, "account", "", None, START, START + timedelta(days=36_500), "", "benchmark", START
        )
        types = {field.name: field.type for field in tables.SILVER_LIST_ENTRIES.schema}
        made = {name: pa.repeat(pa.scalar(given, types[name]), entries) for name, given in one.added.items()}
        made["entry_id"] = pa.array([f"{number:032}" for number in range(entries)], pa.string())
        made["entity_key"] = pa.array([str(2 * number) for number in range(entries)], pa.string())
        lake.store.append(tables.SILVER_LIST_ENTRIES, pa.table(made))


def measure(lake: Lake) -> dict[str, float]:
    """Run the stream over all of silver; return its rate, and the numbers of alerts."""
    begin = time.monotonic()
    (done,) = stream.run(lake, detect.streams(lake), "available-now")
    seconds = time.monotonic() - begin
    counts = {table.name: lake.store.count(table) for table in tables.ALERTS}
    return {"rows_per_second": round(done.rows / seconds), "batches": done.batches} | counts


if __name__ == "__main__":
    main()
