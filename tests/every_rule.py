"""A lake with rules of every kind, live and in the shadow, declared columns, and analysts' verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.lake import Lake, open_lake
from fraudlake.model import search, training, verdicts
from fraudlake.rules.kinds import RULE
from fraudlake.settings import Settings
from fraudlake.streams import aggregate, detect, ingest, refine, score, stream
from fraudlake_tools import simulator

ROWS, DAYS = 9_000, 6
TRAFFIC = simulator.Traffic(accounts=30, rate=ROWS / DAYS / 86_400, fraud=0.03, bad=0.005, columns=True)
COLUMNS = {
    "merchant_id": {"from": "merchantId", "type": "string"},
    "terminal_id": {"from": "terminalId", "type": "bigint"},
    "device_id": {"from": "deviceId", "type": "string"},
}
BURST = {"kind": "threshold", "name": "burst", "aggregate": "count", "window": "5 minutes", "above": 4}
TERMINALS = {
    "kind": "threshold",
    "name": "terminals",
    "aggregate": "distinct",
    "column": "terminal_id",
    "window": "5 minutes",
    "above": 3,
}
PROBE = {
    "kind": "pattern",
    "name": "probe",
    "pattern": "SMALL LARGE",
    "define": {"SMALL": "SMALL.amount < 1 AND SMALL.deviceId IS NOT NULL", "LARGE": "LARGE.amount > 500"},
    "within": "1 minute",
    "measures": {"merchant": "LAST(LARGE.merchantId)", "taken": "LARGE.amount"},
}
LARGE = {
    "kind": "pattern",
    "name": "large",
    "pattern": "A B",
    "define": {"A": "A.amount > 200", "B": "B.amount > 200 AND B.merchantId <> A.merchantId"},
    "within": "1 hour",
}
LIVE, SHADOW = (BURST, PROBE), (TERMINALS, LARGE)
PAIR = {"name": "small_then_large", "small_below": 1.0, "large_above": 500.0, "within": "60 s"}


def make(root: Path) -> Lake:
    """Make the lake: the shadows begin after half of the rows, and verdicts follow on what a third of the rows are."""
    rows = next(simulator._tables(TRAFFIC, ROWS))
    landed = rows.select(TRAFFIC.schema.names)
    lake = open_lake(Settings(lake=root, columns=COLUMNS, rules=[PAIR, *LIVE], shuffle_partitions=2, buckets=2))
    landing = root / "landing"
    landing.mkdir()
    pq.write_table(landed.slice(0, ROWS // 2), landing / "part-0")
    run(lake, ingest.streams, refine.streams, detect.streams)
    for shadow in SHADOW:
        rule_table.add(lake, [RULE.validate_python(shadow)], "ann", "an idea")
        rule_table.set_status(lake.store, shadow["name"], "shadow", "ann", None)
    pq.write_table(landed.slice(ROWS // 2), landing / "part-1")
    run(lake, ingest.streams, refine.streams, detect.streams, aggregate.streams)

    _decide(lake, rows, root.parent / "verdicts.csv")
    before = search.SEARCH["trees"]
    search.SEARCH["trees"] = (search.Candidate("trees", 8, 20),)
    try:
        training.train(lake)
    finally:
        search.SEARCH["trees"] = before
    run(lake, score.streams)
    return lake


def run(lake: Lake, *chosen: Any) -> None:
    """Run the streams of steps over what has landed."""
    for step in chosen:
        for one in step(lake):
            stream.run(lake, [one], "available-now")


def _decide(lake: Lake, rows: pa.Table, file: Path) -> None:
    """Load verdicts: all fraud, which Flink's label knows a third of, and every third other transaction."""
    kinds = rows["kind"].to_pylist()
    silver = lake.store.query(
        f"SELECT transaction_id, source, position FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    ).to_pylist()
    numbers = {row["transaction_id"]: int(row["source"][-1]) * (ROWS // 2) + row["position"] for row in silver}
    decided = [(name, kinds[n] is not None) for name, n in numbers.items() if kinds[n] or n % 3 == 0]
    file.write_text("transaction_id,verdict\n" + "".join(f"{name},{verdict}\n" for name, verdict in decided))
    verdicts.load(lake, file)
