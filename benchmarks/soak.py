"""An hour's work: all streams go on together while rows come and maintenance runs beside them. Run by hand.

    python -m benchmarks.soak --minutes 60 --rate 2000 --source kafka --work /tmp/soak

``fraudlake run --trigger continuous`` takes rows from a landing folder or a real broker, and ``fraudlake optimize``
runs beside it. Printed are the memory of its processes, the files of the lake and of the streams' checkpoints, the
waits for alerts in the first and the last sixth, and how the alerts differ from those of the row-at-a-time oracle.
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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from tests import oracle
from tests.integration.broker import Broker
from tests.standin.process import stored

from fraudlake import simulator

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
HISTORY = 60_000
"""Rows that are there at the beginning: a model is trained on them."""
BETWEEN_SAMPLES = 10  # seconds


class Sample(NamedTuple):
    """What there is at a time: seconds since the beginning, megabytes, and numbers of files."""

    seconds: float
    resident: float
    table_files: int
    checkpoint_files: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=2000, help="rows a second")
    parser.add_argument("--source", choices=("files", "kafka"), default="files")
    parser.add_argument("--maintenance", type=float, default=5, help="minutes between two runs of optimize")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    lake = options.work / "lake"
    simulator.simulate(lake / "landing", simulator.Traffic(fraud=0.02), rows=HISTORY)
    environment = {**os.environ, "FRAUDLAKE_LAKE": str(lake), "FRAUDLAKE_ALGORITHM": "logistic"}
    subprocess.run([FRAUDLAKE, "run"], env=environment, check=True, stdout=subprocess.DEVNULL)
    broker = None
    if options.source == "kafka":
        broker = Broker(options.work / "broker")
        broker.start()
        broker.create_topic("soak", partitions=2)
        servers = {"FRAUDLAKE_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "FRAUDLAKE_TOPIC": "soak"}
        environment |= {"FRAUDLAKE_SOURCE": "kafka", **servers}
    streams = subprocess.Popen(
        [FRAUDLAKE, "run", "--trigger", "continuous"], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert streams.stderr is not None
    # It takes what there is before its streams go on together.
    next(line for line in streams.stderr if "optimize" in line)
    threading.Thread(target=shutil.copyfileobj, args=(streams.stderr, sys.stderr)).start()
    begin, seconds = datetime.now(UTC), 60 * options.minutes
    rows = simulator.batches(simulator.Traffic(rate=options.rate, start=begin, fraud=0.02), options.rate)
    send = _land(lake / "landing") if broker is None else _produce(broker)
    sent: list[pa.RecordBatch] = []
    traffic = threading.Thread(target=_paced, args=(rows, seconds, send, sent))
    traffic.start()
    samples = list(_watched(streams, lake, environment, seconds, 60 * options.maintenance))
    traffic.join()
    streams.send_signal(signal.SIGTERM)
    streams.wait()
    status = json.loads(subprocess.check_output([FRAUDLAKE, "--json", "run"], env=environment))
    if broker is not None:
        broker.stop()
    figures = {"rows": sum(batch.num_rows for batch in sent), "gaps": status["gaps"], "ended_with": streams.returncode}
    print(json.dumps(figures | _alerts(lake, sent, begin, seconds) | _growth(samples)))


def _paced(
    rows: Iterator[pa.RecordBatch], seconds: float, send: Callable[[pa.RecordBatch], None], sent: list[pa.RecordBatch]
) -> None:
    """Send a second's rows when the second is over."""
    began = time.monotonic()
    for number in range(1, round(seconds) + 1):
        batch = next(rows)
        time.sleep(max(0.0, began + number - time.monotonic()))
        send(batch)
        sent.append(batch)


def _land(folder: Path) -> Callable[[pa.RecordBatch], None]:
    def land(batch: pa.RecordBatch) -> None:
        name = f"part-soak-{time.monotonic_ns()}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), folder / f".{name}")
        (folder / f".{name}").rename(folder / name)

    return land


def _produce(broker: Broker) -> Callable[[pa.RecordBatch], None]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})

    def produce(batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            row["dt"] = row["dt"].strftime("%Y-%m-%d %H:%M:%S.%f")
            producer.produce("soak", json.dumps(row), row["accountId"])
        producer.flush()

    return produce


def _watched(
    streams: subprocess.Popen[str], lake: Path, environment: dict[str, str], seconds: float, between: float
) -> Iterator[Sample]:
    """Take samples of the streams while they run, and run maintenance beside them."""
    process, began, maintenance = psutil.Process(streams.pid), time.monotonic(), between
    while (now := time.monotonic() - began) < seconds:
        if now > maintenance:
            maintenance += between
            subprocess.Popen([FRAUDLAKE, "optimize"], env=environment, stdout=subprocess.DEVNULL)
        resident = sum(one.memory_info().rss for one in [process, *process.children(recursive=True)]) / 2**20
        files = [sum(1 for _ in (lake / name).rglob("*.*")) for name in ("tables", "checkpoints")]
        yield Sample(now, resident, *files)
        time.sleep(BETWEEN_SAMPLES)


def _growth(samples: list[Sample]) -> dict[str, Any]:
    """What the streams need in the middle of the run and at its end, and how fast their memory grows between."""
    later = samples[len(samples) // 2 :]
    slope = np.polyfit([one.seconds / 3600 for one in later], [one.resident for one in later], 1)[0]
    return {
        "megabytes": [round(one.resident) for one in (later[0], later[-1])],
        "megabytes_per_hour": round(slope),
        "table_files": [one.table_files for one in (later[0], later[-1])],
        "checkpoint_files": [one.checkpoint_files for one in (later[0], later[-1])],
    }


def _alerts(lake: Path, sent: list[pa.RecordBatch], begin: datetime, seconds: float) -> dict[str, Any]:
    """Compare the alerts with the oracle's, and return the percentiles of their waits in seconds."""
    table = pa.Table.from_batches(sent).select(["accountId", "dt", "amount"])
    rows = (
        oracle.Row(account, round(at.timestamp() * 1_000_000), amount)
        for account, at, amount in zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    truth = {(large.account_id, large.time) for _, large in oracle.alerts(oracle.in_event_time(rows))}
    raised = stored(lake / "tables" / "silver_alerts").select(["account_id", "timestamp", "detected_at"])
    since = [row for row in raised.to_pylist() if row["timestamp"] >= begin]
    keys = [(row["account_id"], round(row["timestamp"].timestamp() * 1_000_000)) for row in since]
    waits = {"first_sixth": [], "last_sixth": []}
    for row in since:
        at = (row["timestamp"] - begin).total_seconds() / seconds
        if at < 1 / 6 or at >= 5 / 6:
            wait = (row["detected_at"] - row["timestamp"]).total_seconds()
            waits["first_sixth" if at < 1 / 6 else "last_sixth"].append(wait)
    percentiles = {
        name: {f"p{part}": round(float(np.percentile(some, part)), 2) for part in (50, 95, 99)}
        for name, some in waits.items()
        if some
    }
    return {
        "alerts": len(keys),
        "missing": len(truth - {*keys}),
        "wrong": len({*keys} - truth),
        "doubled": len(keys) - len({*keys}),
        "waits": percentiles,
    }


if __name__ == "__main__":
    main()
