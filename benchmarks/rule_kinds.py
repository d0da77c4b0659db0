"""Throughput of rules of each kind, compared with Flink SQL over the same rows, in rows per second.

    python -m benchmarks.rule_kinds --flink "run.sh peer.MatchRecognize" --rows 1000000 --work /tmp/kinds

FLINK is a command that runs queries in Flink SQL, state on the heap: `FLINK --in ROWS.jsonl --sql QUERY.sql … --out
FOLDER --quiet`, which prints a JSON object a query with its rows and seconds. Both begin from nothing, in event-time
order. Flink's seconds include its start, ours the start of the stream. The second run of a rule, in a JVM that has run
the default rule twice, is the one that is set against Flink. Then 1, 10 and 100 rules of mixed kinds run together, and
each query runs over history.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.detector import measure, prepared
from fraudlake.detection import backtest
from fraudlake.rules.kinds import Rule
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings import Settings
from fraudlake.statistics import windows
from fraudlake.times.calendar import MICROSECOND
from fraudlake_patterns import rows
from fraudlake_patterns.expressions import Column
from fraudlake_patterns.values import STRING

PATTERNS = {
    "fixed": "PATTERN (A B C) WITHIN INTERVAL '10' MINUTE "
    "DEFINE A AS A.amount < 20, B AS B.amount > A.amount * 2, C AS C.amount > 100",
    "loop": "PATTERN (A{2,} B) WITHIN INTERVAL '10' MINUTE "
    "DEFINE A AS A.amount < 20, B AS B.amount > SUM(A.amount) * 5",
}
MATCH = """SELECT * FROM transactions MATCH_RECOGNIZE (
  PARTITION BY accountId ORDER BY dt MEASURES LAST(dt) AS ended AFTER MATCH SKIP PAST LAST ROW {} )"""
OVER = """SELECT * FROM (
  SELECT accountId, dt, {} OVER (
    PARTITION BY accountId ORDER BY dt RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS n
  FROM transactions) WHERE n > {}"""
THRESHOLDS = {"count": "COUNT(*)", "sum": "SUM(amount)"}
"""The aggregates in Flink SQL."""
WINDOW = timedelta(minutes=10)
RAISED = 0.01
"""The share of rows whose window is above a threshold's limit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flink", help="the command that runs Flink; without it only ours are measured")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=200.0, help="transactions a second of event time")
    parser.add_argument("--batches", type=int, default=1, help="micro-batches; `detect` takes all that is there in one")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    settings = Settings(lake=options.work / "lake", ordering="event_time", max_out_of_orderness="10 seconds")
    lake, parquet = prepared(
        options.work, settings, options.rows, options.accounts, options.rate, file_rows=options.rows // options.batches
    )
    queries = {name: MATCH.format(pattern) for name, pattern in PATTERNS.items()}
    rules: dict[str, Rule] = {name: PatternRule(name=name, sql=sql) for name, sql in queries.items()}
    for name, aggregate in THRESHOLDS.items():
        limit = limit_of(name, parquet)
        queries[name] = OVER.format(aggregate, limit)
        threshold = {"name": name, "aggregate": name, "window": WINDOW, "above": limit}
        rules[name] = ThresholdRule.model_validate(threshold)
    flinks = {} if options.flink is None else in_flink(options, parquet, queries)
    for _ in range(2):  # Spark's own code is compiled by then
        ours(lake, [*Settings().rules])
    for name, rule in rules.items():
        first, second = ours(lake, [rule]), ours(lake, [rule])
        figures = {"rule": name, "first": first, "second": second}
        if name in flinks:
            alerts, seconds = flinks[name]
            ratio = second["rows_per_second"] * seconds / options.rows
            flink = {"rows_per_second": round(options.rows / seconds), "alerts": alerts}
            figures |= {"flink": flink, "ratio": round(ratio, 1)}
        print(json.dumps(figures), flush=True)
        begun = time.monotonic()
        backtest.backtest(lake, rule, None, None)
        print(json.dumps({"backtest": name, "rows_per_second": round(options.rows / (time.monotonic() - begun))}))
    for number in (1, 10, 100):
        some = [numbered(index, rules) for index in range(number)]
        ours(lake, some)
        print(json.dumps({"rules": number} | ours(lake, some)), flush=True)


def limit_of(aggregate: str, parquet: Path) -> int:
    """Return the limit that :data:`RAISED` of all rows exceed."""
    table = pq.read_table(parquet, columns=["accountId", "dt", "amount"])
    table = table.rename_columns(["account_id", "timestamp", "amount"])
    ordered = rows.sort(table, "timestamp", [Column("account_id", STRING)], [], ["timestamp", "amount"])
    spans = windows.duration_spans(ordered.columns["timestamp"].values, ordered.starts, WINDOW // MICROSECOND)
    return round(float(np.quantile(windows.aggregate(aggregate, ordered.columns["amount"], spans), 1 - RAISED)))


def ours(lake: Any, rules: list[Rule]) -> dict[str, int]:
    """Run rules over all rows; return rows per second and alerts."""
    figures = measure(lake, rules, files_per_batch=1, warm_up=0)
    return {name: figures[name] for name in ("rows_per_second", "alerts")}


def numbered(index: int, rules: dict[str, Rule]) -> Rule:
    """Return the tutorial's rule, and then rules of each kind in turn, with names of their own."""
    kinds: list[Rule] = [*Settings().rules, *rules.values()]
    return kinds[index % len(kinds)].model_copy(update={"name": f"rule_{index}"})


def in_flink(options: argparse.Namespace, parquet: Path, queries: dict[str, str]) -> dict[str, tuple[int, float]]:
    """Return rows and seconds of each query in Flink SQL."""
    lines, arguments = options.work / "rows.jsonl", []
    with lines.open("w") as file:
        for path in sorted(parquet.iterdir()):
            for row in pq.read_table(path).to_pylist():
                dt = row["dt"].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
                file.write(json.dumps(row | {"dt": dt}) + "\n")
    for name, sql in queries.items():
        (options.work / f"{name}.sql").write_text(sql)
        arguments += ["--sql", str(options.work / f"{name}.sql")]
    command = [
        *shlex.split(options.flink),
        "--in",
        str(lines),
        *arguments,
        "--out",
        str(options.work / "out"),
        "--quiet",
        # Without lateness Flink drops rows of the millisecond in which it has just moved its watermark.
        *("--lateness", "1"),
    ]
    with (options.work / "flink.log").open("w") as log:
        said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=log).stdout.splitlines()
    answers = [json.loads(line) for line in said if line.startswith("{")]
    return {answer["query"]: (answer["rows"], answer["seconds"]) for answer in answers}


if __name__ == "__main__":
    main()
