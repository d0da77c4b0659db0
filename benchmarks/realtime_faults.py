"""Kills, a broker that is away, more partitions: no alert of the fast lane is lost. Run by hand.

    .venv-realtime/bin/python -m benchmarks.realtime_faults --seed 1 --kills 20 --work /tmp/faults

Traffic goes on all the while. ``fraudlake realtime`` is a process that is killed with SIGKILL at random moments and
started again; once the broker is killed and away for a minute, and once the topic gets another partition. In the end
its alerts must cover those of the row-at-a-time oracle over the rows in the order in which Kafka got them; an alert
that comes again must have the same id.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

from benchmarks.realtime import ACCOUNTS, expected, message
from confluent_kafka import Producer
from tests import oracle
from tests.integration.broker import Broker

FRAUDLAKE = str(Path(sys.executable).with_name("fraudlake"))
RATE = 200  # rows a second
BROKER_AWAY = 60  # seconds
PATIENCE = 300  # seconds


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
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
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
        truth = expected(in_topics_order(broker, traffic.rows))
        raised = until_raised(broker, truth)
        pairs = {(data["small_transaction_id"], data["transaction_id"]) for data in raised.values()}
        print(
            json.dumps(
                {
                    "seed": options.seed,
                    "kills": options.kills,
                    "rows": len(traffic.rows),
                    "alerts": len(truth),
                    "missing": len(truth - pairs),
                    "beyond": len(pairs - truth),
                    "messages": len(broker.messages("alerts")),
                    "ids": len(raised),
                    "pairs": len(pairs),
                    "goes_on_after_the_broker_was_away": survived,
                }
            )
        )
        sys.exit(bool(truth - pairs) or len(raised) != len(pairs))
    finally:
        if lane is not None:
            lane.kill()
            lane.wait()
        broker.stop()


def start(folder: Path, broker: Broker, batch: str) -> subprocess.Popen[bytes]:
    """Start the lane, and wait until its query has started."""
    command = [FRAUDLAKE, "--lake", str(folder / "lake"), "realtime", "--realtime-batch", batch]
    command += ["--bootstrap-servers", broker.bootstrap_servers]
    command += ["--topic", "transactions", "--fast-alerts-topic", "alerts"]
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


def until_raised(broker: Broker, truth: set[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Wait for all alerts; return the data of each by its id."""
    deadline = time.monotonic() + PATIENCE
    while True:
        raised = {event["id"]: event["data"] for event in map(json.loads, values(broker))}
        pairs = {(data["small_transaction_id"], data["transaction_id"]) for data in raised.values()}
        if truth <= pairs or time.monotonic() > deadline:
            return raised
        time.sleep(5)


def values(broker: Broker) -> list[bytes]:
    return [value for one in broker.messages("alerts") if (value := one.value()) is not None]


if __name__ == "__main__":
    main()
