"""Ten seconds of traffic through a real broker: each alert of the fast lane as it comes, then what both lanes say.

    make realtime-demo

Args: the folder to work in, which is emptied, and the program ``fraudlake`` of the fast lane's environment.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer

from fraudlake.gold import lane_agreement
from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake_cli.output.progress import console, output
from fraudlake_lane.lane import FIRST_BATCHES
from tests.conftest import run
from tests.integration.broker import Broker, Outgoing

SECONDS, RATE = 10, 200
AMOUNTS = (0.75, 12.5, 20.0, 35.5, 50.0, 64.9, 80.0, 120.0, 180.0, 240.0, 250.0, 750.0)
"""One row in twelve is small, and one large: about one in 150 raises an alert."""
PATIENCE = 180  # seconds


def main(folder: Path, fast_lane: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    broker = Broker(folder / "broker")
    with console.status("a Kafka broker starts"):
        broker.start()
    try:
        broker.create_topic("transactions", 2)
        broker.create_topic("fast-alerts", 1)
        # Both lanes, and every process, have the same settings.
        os.environ |= {
            "FRAUDLAKE_SOURCE": "kafka",
            "FRAUDLAKE_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "FRAUDLAKE_TOPIC": "transactions",
            "FRAUDLAKE_FAST_ALERTS_TOPIC": "fast-alerts",
        }
        with (folder / "realtime.log").open("wb") as log:
            lane = subprocess.Popen(
                [fast_lane, "--lake", str(folder / "fast"), "realtime"],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            waits = traffic(broker, lane, folder / "realtime.log")
        finally:
            lane.send_signal(signal.SIGINT)
            lane.wait(PATIENCE)
        shares = ", ".join(f"p{q} {np.percentile(waits, q):.0f} ms" for q in (50, 95, 99))
        output.print(f"{len(waits)} alerts, from a transaction's message to its alert's: {shares}\n", soft_wrap=True)
        output.print("The exact lane takes both topics:")
        lake = folder / "lake"
        for step in ("ingest", "refine", "detect", "aggregate"):
            with contextlib.redirect_stdout(io.StringIO()):  # its progress is on standard error
                run(lake, step)
        agreement(lake)
    finally:
        broker.stop()


def traffic(broker: Broker, lane: subprocess.Popen[bytes], log: Path) -> list[int]:
    """Produce transactions and print their alerts; return the milliseconds that each took."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "demo", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["fast-alerts"])
    try:
        with console.status("the fast lane starts: its first alert takes up to a minute"):
            raise_one(broker, reader, lane)
        with console.status(f"its first {FIRST_BATCHES} batches are short: it commits every five seconds"):
            while committed(log) < FIRST_BATCHES:
                next_alert(reader, lane, 0.2)  # none comes, unless an alert is raised again; or the lane has ended
            raise_one(broker, reader, lane)
        output.print(f"{SECONDS} seconds, {RATE} transactions a second:")
        chosen, waits, sent, begun = random.Random(20), [], 0, time.monotonic()
        while sent < SECONDS * RATE or waits_for_more(begun):
            due = min(int((time.monotonic() - begun) * RATE), SECONDS * RATE)
            broker.produce(
                "transactions",
                [message(str(chosen.randrange(1, 100)), chosen.choice(AMOUNTS)) for _ in range(due - sent)],
            )
            sent = due
            waits += [shown for shown in [next_alert(reader, lane, 0.02)] if shown is not None]
        return waits
    finally:
        reader.close()


def raise_one(broker: Broker, reader: Consumer, lane: subprocess.Popen[bytes]) -> None:
    """Produce transactions that raise an alert, and wait for it."""
    broker.produce("transactions", [message("0", 0.75), message("0", 750.0)])
    if next_alert(reader, lane, PATIENCE) is None:
        sys.exit(f"no alert in {PATIENCE} seconds: see realtime.log")


def committed(log: Path) -> int:
    """Return how many batches the lane says that it has committed."""
    return max(map(int, re.findall(r"(\d+) batches committed", log.read_text())), default=0)


def waits_for_more(begun: float) -> bool:
    """Return whether the last transactions may still raise alerts."""
    return time.monotonic() - begun < SECONDS + 3


def message(account: str, amount: float) -> Outgoing:
    """A transaction of now."""
    fields = {"ts": time.time_ns() // 1_000_000, "accountId": account, "amount": amount}
    return account, json.dumps(fields).encode(), None


def next_alert(reader: Consumer, lane: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Print the next alert, if one comes in time; return how many milliseconds it took."""
    end = time.monotonic() + seconds
    while True:
        received = reader.poll(min(seconds, 1))
        if received is not None and received.error() is None:
            event = json.loads(received.value())
            began = datetime.fromisoformat(event["transactiontime"]).timestamp() * 1000
            waited = received.timestamp()[1] - round(began)
            output.print(f"{waited:6} ms  {event['data']['explanation']}", soft_wrap=True)
            return waited
        if lane.poll() is not None:
            sys.exit("the fast lane has ended: see realtime.log")
        if time.monotonic() > end:
            return None


def agreement(lake: Path) -> None:
    """Print how the lanes agree, by day and rule."""
    for row in open_lake(Settings(lake=lake)).read(lane_agreement.TABLE).collect():
        counts = {name: number for name, number in row.asDict().items() if name.startswith("only_") and number}
        others = ", ".join(f"{name} {number}" for name, number in counts.items()) or "none that only one has"
        output.print(f"{row['date']} {row['rule']}: both lanes raised {row['both']} alerts; {others}", soft_wrap=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
