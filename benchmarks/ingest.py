"""Files → bronze: rows/s on large files, files/s on small ones, against a plain copy, and memory. Run by hand.

python -m benchmarks.ingest speed
python -m benchmarks.ingest memory 2000000; python -m benchmarks.ingest memory 10000000
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.settings import Settings
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams import ingest, stream
from fraudlake_tools import simulator


def seconds(lake: Lake) -> float:
    begun = time.monotonic()
    stream.run(lake, ingest.streams(lake), "available-now")
    return time.monotonic() - begun


def plain(lake: Lake, name: str) -> float:
    begun = time.monotonic()
    files = lake.spark.read.option("recursiveFileLookup", "true").parquet(landing_folder(lake).path)
    files.write.format("delta").save(str(lake.root / name))
    return time.monotonic() - begun


def land(folder: Path, rows: int, file_rows: int) -> None:
    simulator.simulate(folder, simulator.Traffic(), rows=rows, file_rows=file_rows)


def lake_of(root: Path, **settings: Any) -> Lake:
    return open_lake(Settings(lake=root, **settings))


def speed(work: Path) -> None:
    land(work / "warm" / "landing", 50_000, 10_000)
    warm = lake_of(work / "warm")
    seconds(warm), plain(warm, "plain")
    for label, rows, file_rows in (
        ("large", 2_000_000, 100_000),
        ("larger", 10_000_000, 100_000),
        ("small", 250_000, 500),
    ):
        land(work / label / "landing", rows, file_rows)
        lake = lake_of(work / label)
        ours, theirs = seconds(lake), plain(lake, "plain")
        assert lake.read(tables.BRONZE_TRANSACTIONS).count() == rows
        print(
            f"{label}: {rows:,} rows in {rows // file_rows:,} files of {file_rows:,}: {ours:.1f} s, "
            f"{rows / ours:,.0f} rows/s, {rows / file_rows / ours:,.1f} files/s; "
            f"plain copy {theirs:.1f} s; ratio {theirs / ours:.2f}",
            flush=True,
        )


def memory(work: Path, rows: int) -> None:
    land(work / "lake" / "landing", rows, 100_000)
    lake = lake_of(work / "lake", max_files_per_trigger=10)
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            peak[0] = max(peak[0], _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    took = seconds(lake)
    done.set()
    watcher.join()
    print(f"{rows:,} rows: {took:.0f} s, peak {peak[0] / 2**20:,.0f} MiB in all processes (Python and Java)")


def _resident() -> int:
    """Bytes of this process and those below it that are in memory."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
        except OSError:
            continue
    family, me = {int(Path("/proc/self").resolve().name)}, 0
    while len(family) > me:
        me = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(pages.get(pid, 0) for pid in family) * 4096


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:2] == ["memory"]:
            memory(Path(folder), int(sys.argv[2]))
        else:
            speed(Path(folder))
