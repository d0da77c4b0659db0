"""The small-file problem: 10,000 small input files into bronze, files and read time before and after ``optimize``.

python -m benchmarks.small_files [files] [files a micro-batch]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.operations import maintenance
from fraudlake.settings import Settings
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams import ingest, stream
from fraudlake_tools import simulator


def show(lake: Lake, when: str) -> None:
    name = tables.BRONZE_TRANSACTIONS.name
    detail = lake.spark.sql(f"DESCRIBE DETAIL {name}").select("numFiles", "sizeInBytes").collect()[0]
    seconds = []
    for _ in range(4):
        begun = time.monotonic()
        lake.spark.sql(f"SELECT accountId, sum(amount) FROM {name} GROUP BY accountId").collect()
        seconds.append(time.monotonic() - begun)
    print(
        f"{when}: {detail['numFiles']:,} files, {detail['sizeInBytes'] / 2**20:.1f} MiB, "
        f"sum by account {min(seconds[1:]):.2f} s",
        flush=True,
    )


def main(count: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = open_lake(Settings(lake=Path(folder), max_files_per_trigger=batch))
        # An hour of event time in 20 rows: the files spread over 40 days, as buckets of a quiet Flink would.
        traffic = simulator.Traffic(rate=20 * count / (40 * 86_400))
        simulator.simulate(Path(landing_folder(lake).path), traffic, rows=20 * count, file_rows=20)
        begun = time.monotonic()
        stream.run(lake, ingest.streams(lake), "available-now")
        print(f"{count:,} input files of 20 rows: {time.monotonic() - begun:.0f} s, {batch} a micro-batch", flush=True)
        show(lake, "before optimize")
        begun = time.monotonic()
        maintenance.optimize(lake)
        print(f"optimize: {time.monotonic() - begun:.0f} s")
        show(lake, "after optimize")


if __name__ == "__main__":
    main(*(int(given) for given in [*sys.argv[1:], *("10000", "200")[len(sys.argv) - 1 :]]))
