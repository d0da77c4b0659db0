"""Kills, a broker that is away, more partitions: no alert of the fast lane is lost. Run by hand.

    .venv-realtime/bin/python -m benchmarks.realtime_faults --seed 1 --kills 20 --work /tmp/faults

Traffic continues all the while. ``fraudlake realtime`` is a process that is killed with SIGKILL at random moments and
started again; once the broker is killed and away for a minute, and once the topic gets another partition. In the end
its alerts of pairs must cover those of the row-at-a-time oracle over the rows in the order in which Kafka got them, and
those of thresholds the windows of plain Python over all rows. A pair that comes again must have the same id.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import count
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.realtime import ACCOUNTS, expected, message
from tests import oracle
from tests.integration.broker import Broker

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
RATE = 200  # rows a second
BROKER_AWAY = 60  # seconds
PATIENCE = 300  # seconds
PAIRS = """
[[rules]]
name = "small_then_large"
small_below = 1.0
large_above = 500.0
within = "1 minute"
"""
THRESHOLDS = """
[[rules]]
kind = "threshold"
name = "busy"
aggregate = "count"
window = "1 minute"
above = 18

[[rules]]
kind = "threshold"
name = "spent"
aggregate = "sum"
window = "1 minute"
above = 5000
"""
AMOUNTS_BEYOND: dict[str, Callable[[list[float]], bool]] = {
    "busy": lambda amounts: len(amounts) > 18,
    "spent": lambda amounts: math.fsum(amounts) > 5000,
}
"""Whether a threshold of :data:`THRESHOLDS` raises an alert on the amounts of a window."""


class Traffic(threading.Thread):
    """Produces rows until it is ended; a broker that is away delays them."""

    def __init__(self, broker: Broker, seed: int) -> None:
        super().__init__()
        self._broker, self._random, self._ended = broker, random.Random(seed), threading.Event()
        self.rows: list[oracle.Row] = []

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )
        begun, source = time.monotonic(), count()
        while not self._ended.is_set():
            for _ in range(int((time.monotonic() - begun) * RATE) - len(self.rows)):
                row, value = message(self._random, next(source), ACCOUNTS * RATE)
                producer.produce("transactions", value, row.account_id)
                self.rows.append(row)
            producer.poll(0)
            time.sleep(0.01)
        assert producer.flush(PATIENCE) == 0

    def end(self) -> None:
        self._ended.set()
        self.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--batch", default="20 seconds", help="time between commits")
    parser.add_argument("--pairs-only", action="store_true", help="no thresholds: the state has fewer rows then")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    (options.work / "rules.toml").write_text(PAIRS if options.pairs_only else PAIRS + THRESHOLDS)
    chosen, broker = random.Random(options.seed), Broker(options.work / "broker")
    broker.start()
    lane = None
    try:
        broker.create_topic("transactions", 2, message_timestamp_type="LogAppendTime")
        broker.create_topic("alerts", 1)
        traffic = Traffic(broker, options.seed)
        traffic.start()
        lane, survived = start(options.work, broker, options.batch), None
        for kill in range(options.kills):
            time.sleep(chosen.uniform(5, 60))
            if kill == options.kills // 3:
                time.sleep(60)  # for the lane to catch up
                broker.kill()
                time.sleep(BROKER_AWAY)
                broker.start()
                time.sleep(30)
                survived = lane.poll() is None
            lane.kill()
            lane.wait()
            if kill == options.kills // 2:
                broker.add_partitions("transactions", 3)
            lane = start(options.work, broker, options.batch)
        traffic.end()
        truth = {("small_then_large", *pair) for pair in expected(in_topics_order(broker, traffic.rows))}
        windows = set() if options.pairs_only else beyond_limits(traffic.rows)
        events = until_raised(broker, truth | windows)
        raised = {raised_by(event) for event in events.values()}
        pairs = [event for event in events.values() if event["kind"] == "small_then_large"]
        print(
            json.dumps(
                {
                    "seed": options.seed,
                    "kills": options.kills,
                    "rows": len(traffic.rows),
                    "pairs": len(truth),
                    "windows": len(windows),
                    "missing": len(truth - raised),
                    "missing_windows": len(windows - raised),
                    "beyond": len(raised - truth - windows),
                    "messages": len(broker.messages("alerts")),
                    "ids": len(events),
                    "goes_on_after_the_broker_was_away": survived,
                }
            )
        )
        sys.exit(bool((truth | windows) - raised) or len(pairs) != len({raised_by(event) for event in pairs}))
    finally:
        if lane is not None:
            lane.kill()
            lane.wait()
        broker.stop()


def start(folder: Path, broker: Broker, batch: str) -> subprocess.Popen[bytes]:
    """Start the lane, and wait until its query has started."""
    command = [FRAUDLAKE, "--lake", str(folder / "lake"), "realtime", "--realtime-batch", batch]
    command += ["--bootstrap-servers", broker.bootstrap_servers]
    command += ["--topic", "transactions", "--fast-alerts-topic", "alerts", "--rules", str(folder / "rules.toml")]
    log = folder / "output"
    with log.open("wb") as output:
        lane = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    while "Ctrl-C" not in log.read_text() and lane.poll() is None:
        time.sleep(0.2)
    return lane


def in_topics_order(broker: Broker, rows: list[oracle.Row]) -> list[oracle.Row]:
    """The rows that the topic holds, in the order in which Kafka got them."""
    of_source = {row.source: row for row in rows}
    places = sorted(
        (message.timestamp()[1], message.offset(), message.partition(), json.loads(message.value())["transaction_id"])
        for message in broker.messages("transactions")
    )
    assert len(places) == len(rows), (len(places), len(rows))
    return [of_source[source] for *_, source in places]


def beyond_limits(rows: list[oracle.Row]) -> set[tuple[str, ...]]:
    """The rules and transactions whose windows of a minute of event time, both ends included, are beyond a limit."""
    of_account: dict[str, list[oracle.Row]] = {}
    for row in sorted(rows, key=lambda row: row.time):
        of_account.setdefault(row.account_id, []).append(row)
    beyond = set()
    for own in of_account.values():
        times = [row.time for row in own]
        for row in own:
            window = own[bisect_left(times, row.time - oracle.MINUTE) : bisect_right(times, row.time)]
            amounts = [one.amount for one in window]
            beyond |= {(rule, row.source) for rule, holds in AMOUNTS_BEYOND.items() if holds(amounts)}
    return beyond


def raised_by(event: dict[str, str]) -> tuple[str, ...]:
    """The rule of an alert and its transactions: of a threshold the last one."""
    pair = event["evidence"] if event["kind"] == "small_then_large" else event["evidence"][-1:]
    return (event["rule"], *(part["transaction_id"] for part in pair))


def until_raised(broker: Broker, truth: set[tuple[str, ...]]) -> dict[str, dict[str, str]]:
    """Wait for all alerts; return the data of each by its id."""
    deadline = time.monotonic() + PATIENCE
    while True:
        events = {event["id"]: event["data"] for event in map(json.loads, values(broker))}
        if truth <= {raised_by(event) for event in events.values()} or time.monotonic() > deadline:
            return events
        time.sleep(5)


def values(broker: Broker) -> list[bytes]:
    return [value for one in broker.messages("alerts") if (value := one.value()) is not None]


if __name__ == "__main__":
    main()
