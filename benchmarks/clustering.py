"""What clustering saves: files and bytes read for an account's history, before and after ZORDER, and with liquid.

python -m benchmarks.clustering [rows] [days] [target file size]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.operations import maintenance
from fraudlake.settings import Settings

ACCOUNTS, LOADS_A_DAY = 50_000, 24
TABLE = tables.SILVER_TRANSACTIONS.name


def fill(lake: Lake, rows: int, days: int) -> None:
    """Write ``silver_transactions`` as a stream leaves it: files of an hour each, any account in any of them."""
    rate = days * 86_400_000_000 // rows
    lake.spark.range(0, rows, 1, days * LOADS_A_DAY).selectExpr(
        "format_string('%016x-%d', xxhash64(concat('part-', id div 100000)), id % 100000) AS transaction_id",
        f"cast(pmod(xxhash64(id), {ACCOUNTS}) AS STRING) AS account_id",
        f"timestamp_micros(unix_micros(timestamp'2026-03-01') + id * {rate}) AS timestamp",
        "round(exp(randn(1) + 3), 2) AS amount",
        "pmod(xxhash64(id, 1), 200) = 0 AS label",
        "concat('part-', id div 100000) AS source",
        "id % 100000 AS position",
        "cast(NULL AS ARRAY<STRING>) AS warnings",
        f"to_date(timestamp_micros(unix_micros(timestamp'2026-03-01') + id * {rate})) AS date",
    ).write.format("delta").mode("append").saveAsTable(TABLE)


def show(lake: Lake, what: str) -> None:
    def size(files: list[str]) -> int:
        return sum(Path(unquote(urlsplit(file).path)).stat().st_size for file in files)

    everything = lake.spark.table(TABLE).inputFiles()
    history = f"SELECT * FROM {TABLE} WHERE account_id = '4242'"
    read = lake.spark.sql(history).inputFiles()
    lake.spark.sql(history).collect()
    begun = time.monotonic()
    rows = len(lake.spark.sql(history).collect())
    took = time.monotonic() - begun
    begun = time.monotonic()
    lake.spark.sql(f"SELECT sum(amount), max(timestamp) FROM {TABLE}").collect()
    print(
        f"{what}: {len(read):,} of {len(everything):,} files, "
        f"{size(read) / 1e6:.1f} of {size(everything) / 1e6:.1f} MB, "
        f"{1 - len(read) / len(everything):.1%} of files skipped, {rows} rows in {took:.2f} s; "
        f"a sum over all rows {time.monotonic() - begun:.2f} s",
        flush=True,
    )


def main(rows: int, days: int, target: str) -> None:
    for clustering in ("zorder", "liquid"):
        with tempfile.TemporaryDirectory() as folder:
            lake = open_lake(Settings(lake=Path(folder), clustering=clustering, target_file_size=target))
            lake.spark.conf.set("spark.databricks.delta.autoCompact.enabled", "false")
            fill(lake, rows, days)
            show(lake, f"{clustering}, before optimize")
            begun = time.monotonic()
            maintenance.optimize(lake)
            print(f"{clustering}, optimize to files of {target}: {time.monotonic() - begun:.0f} s", flush=True)
            show(lake, f"{clustering}, after optimize")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("10000000", "30", "512k")[len(sys.argv) - 1 :]]
    main(int(given[0]), int(given[1]), given[2])
