"""How fast the detector turns silver into alerts, in steady state: rows per second, by order and number of accounts.

    python -m benchmarks.detector --rows 20000000 --accounts 50000 --ordering arrival --work /tmp/bench

The input is made once per (rows, accounts) in WORK: parquet files in event-time order, which a Flink peer can read too,
and a lake whose silver_transactions holds the same rows. Steady state leaves out the first `--warm-up` micro-batches.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fraudlake import tables
from fraudlake.detection import alerts as silver_alerts
from fraudlake.detection import detector_stream
from fraudlake.detection.evaluator import Evaluator
from fraudlake.lake import Lake, open_lake
from fraudlake.lake.appender import Appender
from fraudlake.rules import rule_file
from fraudlake.rules.kinds import Rule
from fraudlake.rules.rule_set import RuleSet
from fraudlake.settings import Settings
from fraudlake.streams import stream
from fraudlake_tools import simulator

FILE_ROWS = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--accounts", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=5000.0, help="transactions a second of event time")
    parser.add_argument("--ordering", choices=["arrival", "event_time"], default="arrival")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--files-per-batch", type=int, default=2, help=f"files of {FILE_ROWS:,} rows in a micro-batch")
    parser.add_argument("--warm-up", type=int, default=2, help="micro-batches left out of the figure")
    parser.add_argument("--runs", type=int, default=3, help="in one JVM; the first warms it")
    parser.add_argument("--rules", type=Path, help="a file of [[rules]], instead of the tutorial's rule")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    settings = Settings(
        lake=options.work / "lake",
        ordering=options.ordering,
        buckets=options.buckets,
        max_out_of_orderness="10 seconds",
    )
    lake, flink = prepared(options.work, settings, options.rows, options.accounts, options.rate)
    rules = [rule for rule, _ in rule_file.read(options.rules)] if options.rules else lake.settings.rules
    flagged = lake.spark.read.parquet(str(flink)).where("alert").count()
    for _ in range(options.runs):
        figures = measure(lake, rules, options.files_per_batch, options.warm_up)
        given = {name: getattr(options, name) for name in ("ordering", "rows", "accounts", "buckets")}
        print(json.dumps(given | {"rules": len(rules)} | figures | {"flagged_by_generator": flagged}))


def prepared(work: Path, settings: Settings, rows: int, accounts: int, rate: float, file_rows: int = FILE_ROWS) -> Any:
    """Return a lake whose silver has rows in event-time order, and the folder with the same rows as Flink's files.

    They are made once for each folder, number of rows and of accounts.
    """
    folder = work / f"{rows}-{accounts}-{rate:g}-{file_rows}"
    flink = folder / "parquet"
    if not flink.exists():
        traffic = simulator.Traffic(accounts=accounts, rate=rate)
        simulator.simulate(flink, traffic, rows=rows, file_rows=file_rows)
        in_order = sorted(flink.iterdir(), key=lambda path: int(path.stem.rpartition("-")[2]))
        for number, path in enumerate(in_order):
            path.rename(flink / f"part-{number:05d}.parquet")
    lake = open_lake(settings.model_copy(update={"lake": folder / "lake"}))
    if lake.read(tables.SILVER_TRANSACTIONS).isEmpty():
        for path in sorted(flink.iterdir()):
            silver(lake, path)
    return lake, flink


def measure(lake: Lake, rules: Sequence[Rule], files_per_batch: int, warm_up: int) -> dict[str, Any]:
    """Run the detector over all of silver, from nothing, and return what was seen."""
    shutil.rmtree(lake.checkpoint("detect").folder, ignore_errors=True)
    lake.spark.sql(f"DELETE FROM {tables.SILVER_ALERTS.name}")
    appender = Appender.of(lake, "detect")

    def write(lake, batch, batch_id):
        appender.append(lake, silver_alerts.alerts(batch), tables.SILVER_ALERTS, batch_id)

    source = (
        lake.spark.readStream.option("maxFilesPerTrigger", files_per_batch)
        .option("withEventTimeOrder", "false")
        .table(tables.SILVER_TRANSACTIONS.name)
    )
    batches: list[tuple[int, float]] = []
    seen: set[int] = set()

    evaluator = Evaluator.of(lake.settings, RuleSet.of(rules).versions)
    output = detector_stream.detector_output(source, lake.settings, evaluator)
    detecting = stream.Stream("detect", lambda: output, write)
    query = (
        output.writeStream.option("checkpointLocation", str(lake.checkpoint("detect").folder))
        .foreachBatch(stream.micro_batch(lake, detecting))
        .trigger(availableNow=True)
        .start()
    )
    while query.isActive:
        collect(query, batches, seen)
        time.sleep(0.2)
    collect(query, batches, seen)
    if query.exception():
        raise SystemExit(str(query.exception()))
    steady = batches[warm_up:]
    rows, seconds = sum(rows for rows, _ in steady), sum(seconds for _, seconds in steady)
    size = sum(f.stat().st_size for f in lake.checkpoint("detect").state.rglob("*") if f.is_file())
    return {
        "rows_per_second": round(rows / seconds),
        "batches": [(rows, round(seconds, 2)) for rows, seconds in batches],
        "alerts": lake.read(tables.SILVER_ALERTS).count(),
        "state_megabytes": round(size / 1e6, 1),
    }


def silver(lake: Lake, path: Path) -> None:
    """Append one parquet file to silver_transactions, as one file."""
    lake.spark.read.parquet(str(path)).selectExpr(
        f"concat('{path.stem}-', _metadata.row_index) AS transaction_id",
        "accountId AS account_id",
        "CAST(dt AS TIMESTAMP) AS timestamp",
        "amount",
        "alert AS label",
        f"'twodays/{path.name}' AS source",
        "_metadata.row_index AS position",
        "DATE '2026-01-01' AS date",
    ).coalesce(1).write.format("delta").mode("append").saveAsTable(tables.SILVER_TRANSACTIONS.name)


def collect(query, batches, seen) -> None:
    for report in query.recentProgress:
        if report["batchId"] not in seen and report["numInputRows"]:
            seen.add(report["batchId"])
            batches.append((report["numInputRows"], report["durationMs"]["triggerExecution"] / 1000))


if __name__ == "__main__":
    main()
