"""A soak: all streams run together while rows come and maintenance runs in parallel.

``fraudlake run --trigger continuous`` takes rows from a landing folder or a real broker; with both, the folder's are
taken by a separate ``fraudlake ingest``. ``fraudlake optimize`` runs in parallel.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer

from fraudlake_tools import simulator
from tests import oracle
from tests.integration.broker import Broker
from tests.standin.process import stored

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
BETWEEN_SAMPLES = 10  # seconds
TO_CATCH_UP = 300  # seconds
Send = Callable[[pa.RecordBatch], None]


class Sample(NamedTuple):
    """What there is at a time: seconds since the beginning, megabytes, and numbers of files."""

    seconds: float
    resident: float
    table_files: int
    checkpoint_files: int


@dataclass(frozen=True)
class Soak:
    """How long, and with what."""

    seconds: float
    rate: int
    """Rows a second."""
    source: str
    """``files``, ``kafka`` or ``both``."""
    between_maintenance: float
    """Seconds."""
    history: int
    """Rows that are there at the beginning: a model is trained on them."""

    def run(self, work: Path) -> dict[str, Any]:
        """Run it in a new folder.

        Returns:
            ``rows``: how many were sent; ``gaps``: what ``status`` says of them once the streams have had the time to
            take them all; ``ended_with``: exit codes of the streams' processes; alerts that are ``missing``, ``wrong``
            or ``doubled``; ``waits`` for alerts in the first and the last sixth, percentiles in seconds; in the middle
            and at the end memory, files and the detector's open flags.
        """
        lake = work / "lake"
        (lake / "landing").mkdir(parents=True)
        environment = {**os.environ, "FRAUDLAKE_LAKE": str(lake), "FRAUDLAKE_ALGORITHM": "logistic"}
        with contextlib.ExitStack() as stack:
            senders = [] if self.source == "kafka" else [_land(lake / "landing")]
            if self.source != "files":
                broker = Broker(work / "broker")
                stack.callback(broker.stop)
                broker.start()
                broker.create_topic("soak", partitions=2)
                servers = {"FRAUDLAKE_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "FRAUDLAKE_TOPIC": "soak"}
                environment |= {"FRAUDLAKE_SOURCE": "kafka", **servers}
                senders.append(_produce(broker))
            senders[-1](next(simulator.batches(simulator.Traffic(fraud=0.02), self.history)))
            streams = _streams(environment)
            if self.source == "both":
                from_files = [FRAUDLAKE, "ingest", "--source", "files", "--trigger", "continuous"]
                streams.append(subprocess.Popen(from_files, env=environment))
            try:
                begin = datetime.now(UTC)
                sent: list[pa.RecordBatch] = []
                rows = simulator.batches(simulator.Traffic(rate=self.rate, start=begin, fraud=0.02), self.rate)
                with ThreadPoolExecutor() as pool:
                    beside = [
                        pool.submit(_paced, rows, self.seconds, senders, sent),
                        maintenance := pool.submit(self._maintained, environment),
                    ]
                    samples = list(self._watched(streams, lake))
                    for one in beside:
                        one.result()
                gaps = _gaps(environment)
                for process in streams:
                    process.send_signal(signal.SIGTERM)
                ended_with = [process.wait() for process in streams]
            finally:
                for process in streams:
                    process.kill()
        figures = {"rows": sum(batch.num_rows for batch in sent), "gaps": gaps, "ended_with": ended_with}
        states = maintenance.result()
        figures["open_flags"] = [states[len(states) // 2], states[-1]]
        return figures | _alerts(lake, sent, begin, self.seconds) | _growth(samples)

    def _watched(self, streams: list[subprocess.Popen[Any]], lake: Path) -> Iterator[Sample]:
        """Take samples of the streams while they run."""
        processes, began = [psutil.Process(one.pid) for one in streams], time.monotonic()
        while (now := time.monotonic() - began) < self.seconds:
            resident = sum(_resident(process) for process in processes)
            files = [sum(len(some) for *_, some in os.walk(lake / name)) for name in ("tables", "checkpoints")]
            yield Sample(now, resident, *files)
            time.sleep(BETWEEN_SAMPLES)

    def _maintained(self, environment: dict[str, str]) -> list[int]:
        """Run maintenance in parallel to the streams; return the detector's open flags after each."""
        began, due, open_flags = time.monotonic(), 0.0, []
        while due < self.seconds:
            time.sleep(max(0.0, began + due - time.monotonic()))
            _fraudlake(environment, "optimize")
            open_flags.append(json.loads(_fraudlake(environment, "--json", "state"))["open_flags"])
            due += self.between_maintenance
        return open_flags


def _fraudlake(environment: dict[str, str], *command: str) -> str:
    return subprocess.check_output([FRAUDLAKE, *command], env=environment, text=True)


def _gaps(environment: dict[str, str]) -> list[str]:
    """Wait until the streams have taken all rows; return what is still missing when they had the time to."""
    until = time.monotonic() + TO_CATCH_UP
    while True:
        # The code is 1 as long as something is missing.
        status = subprocess.run([FRAUDLAKE, "--json", "status"], env=environment, stdout=subprocess.PIPE, text=True)
        gaps: list[str] = json.loads(status.stdout)["gaps"]
        if not gaps or time.monotonic() > until:
            return gaps
        time.sleep(BETWEEN_SAMPLES / 10)


def _streams(environment: dict[str, str]) -> list[subprocess.Popen[Any]]:
    """Start all streams; return when they continue together, after a run over what is there."""
    command = [FRAUDLAKE, "run", "--trigger", "continuous"]
    streams = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert streams.stderr is not None
    next(line for line in streams.stderr if "optimize" in line)
    threading.Thread(target=shutil.copyfileobj, args=(streams.stderr, sys.stderr), daemon=True).start()
    return [streams]


def _paced(rows: Iterator[pa.RecordBatch], seconds: float, senders: list[Send], sent: list[pa.RecordBatch]) -> None:
    """Send a second's rows when the second is over; an account's all go to one sender."""
    began = time.monotonic()
    for number in range(1, round(seconds) + 1):
        batch = next(rows)
        time.sleep(max(0.0, began + number - time.monotonic()))
        sender = np.array([int(account) % len(senders) for account in batch["accountId"].to_pylist()])
        for which, send in enumerate(senders):
            send(batch.filter(pa.array(sender == which)))
        sent.append(batch)


def _land(folder: Path) -> Send:
    def land(batch: pa.RecordBatch) -> None:
        name = f"part-soak-{time.monotonic_ns()}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), folder / f".{name}")
        (folder / f".{name}").rename(folder / name)

    return land


def _produce(broker: Broker) -> Send:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})

    def produce(batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            row["dt"] = row["dt"].strftime("%Y-%m-%d %H:%M:%S.%f")
            producer.produce("soak", json.dumps(row), row["accountId"])
        producer.flush()

    return produce


def _resident(process: psutil.Process) -> float:
    """The memory of a process and of all that it has started, in megabytes."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # one of Python's workers has just ended
            total += one.memory_info().rss
    return total / 2**20


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
    waits: dict[str, list[float]] = {"first_sixth": [], "last_sixth": []}
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
