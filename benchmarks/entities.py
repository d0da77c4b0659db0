"""Rules and features by entity: speed, memory and state, and what hot, many and long keys cost.

    python -m benchmarks.entities rules --rows 2000000 --work DIR [--terminals 20000] [--hot 0.3] [--key-bytes 10000]
    python -m benchmarks.entities features --rows 1000000 --work DIR [--files 5] [--terminals …]

Rows of 20,000 accounts at random terminals and devices, of which one terminal has the share `--hot` of all rows, go to
silver_transactions of a lake in DIR. `rules` runs a threshold by account, then the same by terminal. `features` trains
a model with the lake's own features and 18 declared ones by account, terminal and device (24 with `--days 1 7 14 30`,
and eight more by the pair of account and terminal with `--pairs`), and scores all rows as a stream. Each is run several
times in one JVM, of which the first warms it. Seconds of the processor are those of all processes, for other work on
the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

from benchmarks import detector, model
from benchmarks.usage import family, processor_seconds
from fraudlake import tables
from fraudlake.features import feature_state
from fraudlake.lake import Lake, open_lake
from fraudlake.model import training
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings import Settings

COLUMNS = {"terminal_id": "string", "device_id": "string"}
ENTITIES = {"terminal": "terminal_id", "device": "device_id"}
PAIRS = {"pair": ["account_id", "terminal_id"]}
ACCOUNTS = 20_000
BEGIN, DAYS = datetime(2026, 1, 1, tzinfo=UTC), 40
THRESHOLD = {"name": "many", "aggregate": "count", "window": "10 minutes"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rules", "features"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=5, help="of the rows; features scores one in a micro-batch")
    parser.add_argument("--terminals", type=int, default=ACCOUNTS)
    parser.add_argument("--hot", type=float, default=0.0, help="share of the rows of one terminal")
    parser.add_argument("--key-bytes", type=int, default=0, help="length of a terminal's name")
    parser.add_argument("--above", type=int, default=8, help="the limit of the threshold")
    parser.add_argument("--pairs", action="store_true", help="features by account and terminal, too")
    parser.add_argument("--days", type=int, nargs="+", default=[1, 7, 30], help="the windows of features")
    parser.add_argument("--training-rows", type=int, default=5_000_000, help="that features are learned from at most")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    entities = ENTITIES | (PAIRS if options.pairs else {})
    lake = open_lake(
        Settings(
            lake=options.work / "lake",
            columns=COLUMNS,
            entities=entities,
            features=features(options.days, entities) if options.what == "features" else [],
            max_training_rows=options.training_rows,
            driver_memory="6g",
        )
    )
    add_rows(lake, options)
    if options.what == "rules":
        for run in range(options.runs):
            for by in ("account", "terminal"):
                rule = ThresholdRule.model_validate({**THRESHOLD, "above": options.above, "entity": by})
                report(f"threshold by {by}, run {run}", partial(detector.measure, lake, [rule], options.files, 0))
        return
    report("training", lambda: {"reason": training.train(lake).reason})
    for run in range(options.runs):
        report(f"scoring, run {run}", lambda: model.scored(lake, 1))
    print(json.dumps(feature_state.by_entity(lake)))


def features(windows: list[int], entities: Iterable[str]) -> list[dict[str, Any]]:
    """Return a count and a mean of each window, in days, by the account and by each of some entities."""
    declared: list[dict[str, Any]] = []
    for entity in ("account", *entities):
        for days in windows:
            of = {"entity": entity, "window": f"{days} days"}
            mean = {"name": f"{entity}_mean_{days}", "aggregate": "mean", "column": "amount"}
            declared += [{"name": f"{entity}_count_{days}", "aggregate": "count", **of}, {**mean, **of}]
    return declared


def add_rows(lake: Lake, options: argparse.Namespace) -> None:
    """Append rows in the order of time, in some files."""
    draw, table = np.random.default_rng(1), lake.table(tables.SILVER_TRANSACTIONS)
    at = np.sort(draw.integers(0, DAYS * 86_400_000_000, options.rows)) + int(BEGIN.timestamp() * 1e6)
    terminal = draw.integers(1, options.terminals + 1, options.rows) * (draw.random(options.rows) >= options.hot)
    fraud = draw.random(options.rows) < 0.005
    size = -(-options.rows // options.files)
    for begin in range(0, options.rows, size):
        part = slice(begin, begin + size)
        numbers = np.arange(options.rows)[part]
        names = pa.array(terminal[part]).cast(pa.string()).dictionary_encode()
        padded = [name.rjust(options.key_bytes, "t") for name in names.dictionary.to_pylist()]
        columns: dict[str, Any] = {
            "transaction_id": [f"t{number}" for number in numbers],
            "account_id": pa.array(draw.integers(0, ACCOUNTS, len(numbers))).cast(pa.string()),
            "timestamp": pa.array(at[part]).cast(pa.timestamp("us", tz="UTC")),
            "amount": np.round(draw.lognormal(3, 1, len(numbers)) * np.where(fraud[part], 5, 1), 2),
            "label": fraud[part],
            "source": ["part-0"] * len(numbers),
            "position": numbers,
            # One partition: a micro-batch takes whole files.
            "date": pa.array([BEGIN.date()] * len(numbers)),
            "terminal_id": pa.array(padded).take(names.indices),
            "device_id": pa.array(draw.integers(0, 3 * ACCOUNTS, len(numbers))).cast(pa.string()),
        }
        rows = [columns.get(name, pa.nulls(len(numbers))) for name in table.column_names]
        lake.writer(table).write(pa.table(rows, table.column_names).cast(table.schema), "append")


def report(what: str, run: Callable[[], dict[str, Any]]) -> None:
    """Print what a run says, its seconds, and the peak of memory (PSS) of all processes."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(1):
            with contextlib.suppress(psutil.Error):  # one has just ended
                peak[0] = max(peak[0], sum(process.memory_full_info().pss for process in family()))

    watcher = threading.Thread(target=watch)
    begun, before = time.monotonic(), processor_seconds()
    watcher.start()
    figures = run()
    used = {"wall": time.monotonic() - begun, "processor": processor_seconds() - before}
    done.set()
    watcher.join()
    seconds = {name: round(value, 1) for name, value in used.items()}
    print(json.dumps({"what": what, **figures, **seconds, "peak_megabytes": peak[0] // 1_000_000}), flush=True)


if __name__ == "__main__":
    main()
