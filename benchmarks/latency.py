"""How long a landed row waits for its alert: landing → bronze → silver → alert, continuous. Run by hand.

    python -m benchmarks.latency --seconds 120 --work /tmp/latency

A file of 1,000 rows lands every second. For each alert's large transaction the benchmark takes the time at which its
file landed, and the times at which it was committed to bronze, to silver and as an alert. It prints percentiles and
plots the waits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.lake import Lake, open_lake
from fraudlake.settings import Settings
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams import detect, ingest, refine, stream

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
SIMULATE = ("simulate", "--rate", "1000", "--real-time", "--accounts", "500", "--start", "now")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--warm-up", type=int, default=45, help="seconds at the beginning that are left out")
    parser.add_argument("--interval", default="100 milliseconds")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    landing = options.work / "landing"
    landing.mkdir(parents=True)
    lake = open_lake(Settings(lake=options.work, trigger="continuous", interval=options.interval))
    simulator = subprocess.Popen([FRAUDLAKE, "--lake", str(options.work), *SIMULATE], stdout=subprocess.DEVNULL)
    threading.Timer(options.seconds, simulator.send_signal, [signal.SIGINT]).start()
    threading.Timer(options.seconds + 20, os.kill, [os.getpid(), signal.SIGTERM]).start()
    while not any(True for _ in landing_folder(lake).list_files()):
        time.sleep(0.1)
    streams = [new for step in (ingest.streams, refine.streams, detect.streams) for new in step(lake)]
    stream.run(lake, streams, lake.settings.trigger)
    simulator.wait()

    times = measured(lake, landing)
    steady = times[times.landed > times.landed.min() + options.warm_up]
    waits = pd.DataFrame(
        {
            "bronze": steady.bronze - steady.landed,
            "silver": steady.silver - steady.bronze,
            "alert": steady.alert - steady.silver,
        }
    )
    total = waits.sum(axis=1)
    report = {"alerts": len(steady), **{f"p{q}": round(total.quantile(q / 100), 2) for q in (50, 90, 99)}}
    print(json.dumps({**report, "mean": waits.mean().round(2).to_dict()}))
    if options.plot:
        draw(waits, total, options.plot)


def measured(lake: Lake, landing: Path) -> pd.DataFrame:
    """Seconds since 1970 by alert: its file landed, and the commits of its rows in bronze, silver and alerts."""
    bronze = committed(lake, tables.BRONZE_TRANSACTIONS).select("_source_file", F.col("committed").alias("bronze"))
    silver = committed(lake, tables.SILVER_TRANSACTIONS).select(
        "transaction_id", F.col("source").alias("_source_file"), F.col("committed").alias("silver")
    )
    alerts = committed(lake, tables.SILVER_ALERTS).select("transaction_id", F.col("committed").alias("alert"))
    times = alerts.join(silver, on="transaction_id").join(bronze.distinct(), on="_source_file").toPandas()
    times["landed"] = [(landing / name).stat().st_mtime for name in times["_source_file"]]
    return times


def committed(lake: Lake, table: tables.Table) -> DataFrame:
    """The rows that a table got, with the time of the commit that brought them; what compaction rewrote is left out."""
    folder = lake.root / "tables" / table.name
    commits = []
    for log in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        if any(action.get("commitInfo", {}).get("operation") == "WRITE" for action in actions):
            commits += [
                (str(folder / action["add"]["path"]), log.stat().st_mtime) for action in actions if "add" in action
            ]
    times = lake.spark.createDataFrame([(Path(file).name, at) for file, at in commits], "file STRING, committed DOUBLE")
    rows = lake.spark.read.parquet(*(file for file, _ in commits))
    rows = rows.withColumn("file", F.element_at(F.split("_metadata.file_path", "/"), -1))
    return rows.join(F.broadcast(times), on="file")


def draw(waits: pd.DataFrame, total: pd.Series, file: Path) -> None:
    """Draw the waits of all alerts, sorted, by the step in which they waited."""
    order = total.sort_values().index
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    share = [100 * at / len(order) for at in range(len(order))]
    names = ["landed → bronze committed", "→ silver committed", "→ alert committed"]
    axes.stackplot(share, waits.loc[order].T.to_numpy(), labels=names, colors=["#9aa5b1", "#2f5d8a", "#c0392b"])
    axes.set(
        title="From a landed file to its alert",
        xlabel="share of alerts (%)",
        ylabel="seconds",
        xlim=(0, 100),
        ylim=(0, None),
    )
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
