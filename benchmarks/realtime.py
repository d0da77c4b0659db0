"""From a transaction's message to its alert's, in milliseconds: run by hand in the fast lane's environment.

    .venv-realtime/bin/python -m benchmarks.realtime --rates 200,1000,5000 --seconds 60 --work /tmp/realtime
    .venv-realtime/bin/python -m benchmarks.realtime --rates 200,1000,5000 --seconds 60 --work /tmp/micro \
        --micro-batches
    mvn --quiet -f benchmarks/flink compile dependency:copy-dependencies
    .venv-realtime/bin/python -m benchmarks.realtime --rates 200,1000,5000 --seconds 60 --work /tmp/flink \
        --flink "java -cp benchmarks/flink/target/classes:benchmarks/flink/target/dependency/* FlinkLane"

A real broker stamps both messages as it appends them. One query takes all rates, one after the other, and the alerts
are compared with those of the row-at-a-time oracle. ``--micro-batches`` runs the same query without Real-time Mode,
``--flink`` Flink's detector in Java, with a checkpoint every ``--batch``. The memory is that of the query's processes,
in the middle of a rate's time and at its end; what the state has is printed with every batch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from fraudlake.rules import rule_file
from fraudlake.settings import Settings
from fraudlake_lane import lane, rules, session
from tests import oracle
from tests.integration.broker import Broker

AMOUNTS = (0.5, 0.75, 20.0, 35.5, 50.0, 120.0, 180.0, 250.0, 600.0, 900.0)
"""A fifth is small and a fifth large: 4 % of rows raise an alert."""
ACCOUNTS = 5
"""For each row a second: an account pays every five seconds."""
TICK = 0.005  # seconds
BEGINNING = 60  # seconds in which the lane's batches are short
PATIENCE = 180  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="200,1000,5000", help="rows a second, one after the other")
    parser.add_argument("--seconds", type=int, default=60, help="how long each rate is measured")
    parser.add_argument("--warm-up", type=int, default=20, help="seconds at a rate's beginning that are left out")
    parser.add_argument("--batch", default="30 minutes", help="time between commits")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--micro-batches", action="store_true")
    parser.add_argument("--flink", help="the command that runs Flink's detector")
    parser.add_argument("--rules", type=Path, help="file with [[rules]] to evaluate beside, such as thresholds")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    broker = Broker(options.work / "broker")
    broker.start()
    query: Any = None
    try:
        broker.create_topic("transactions", options.partitions, message_timestamp_type="LogAppendTime")
        broker.create_topic("alerts", 1, message_timestamp_type="LogAppendTime")
        settings = {
            "lake": options.work / "lake",
            "bootstrap_servers": broker.bootstrap_servers,
            "topic": "transactions",
            "fast_alerts_topic": "alerts",
            "realtime_batch": options.batch,
        }
        if options.flink:
            query = in_flink(options, broker)
        else:
            query = multiprocessing.get_context("spawn").Process(
                target=run, args=(settings, options.micro_batches, options.rules)
            )
            query.start()
        source = count()
        first = traffic(broker, 100, 5, source)
        if until_raised(broker, expected(first)):
            raise SystemExit(f"no alerts come: see the logs in {options.work}")
        rates = [*map(int, options.rates.split(","))]
        traffic(broker, rates[0], BEGINNING, source)
        for rate in rates:
            with sampled(query.pid) as samples:
                rows = traffic(broker, rate, options.warm_up + options.seconds, source)
            truth = expected(rows)
            measured = {row.source for row in rows[rate * options.warm_up :]}
            missing = until_raised(broker, truth)
            memory = {"megabytes": [samples[len(samples) // 2], samples[-1]]}
            print(
                json.dumps({"rate": rate} | figures(broker, truth, measured) | {"missing": missing} | memory),
                flush=True,
            )
    finally:
        if query is not None:
            query.kill()
        broker.stop()


def in_flink(options: argparse.Namespace, broker: Broker) -> subprocess.Popen[bytes]:
    """Flink's detector, in a separate process."""
    between = f"{Settings(realtime_batch=options.batch).realtime_batch.total_seconds() * 1000:.0f}"
    topics = [broker.bootstrap_servers, "transactions", "alerts"]
    log = (options.work / "flink.log").open("wb")
    command = [*shlex.split(options.flink), *topics, between, str(options.work / "checkpoints")]
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


@contextmanager
def sampled(process: int) -> Iterator[list[int]]:
    """Give the megabytes that a process and its children have in memory, every ten seconds while the block runs."""
    samples: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(10 if samples else 0):
            samples.append(megabytes(process))

    thread = threading.Thread(target=sample)
    thread.start()
    yield samples
    ended.set()
    thread.join()


def megabytes(process: int) -> int:
    """The memory of a process and of those that it started, as ``ps`` has it."""
    listed = subprocess.check_output(["ps", "-eo", "pid=,ppid=,rss="], text=True).splitlines()
    table = [[int(field) for field in line.split()] for line in listed]
    family = {process}
    for pid, parent, _ in sorted(table):  # a child's number is above its parent's
        if parent in family:
            family.add(pid)
    return round(sum(rss for pid, _, rss in table if pid in family) / 1024)


def run(values: dict[str, Any], micro_batches: bool, file: Path | None) -> None:
    """The query, in a separate process."""
    settings = Settings(**values)
    beside = rule_file.read(file) if file else []
    evaluated = (*settings.rules, *(rule for rule, _ in beside))
    chosen = rules.choose((rule, "live", None) for rule in evaluated)
    if not micro_batches:
        lane.run(settings, chosen, progress=lambda totals: print(json.dumps(totals.as_json()), flush=True))
        return
    with session.started(settings, settings.lake / "realtime.log") as own:
        lane.writer(own, settings, chosen).trigger(processingTime="0 seconds").start().awaitTermination()


def traffic(broker: Broker, rate: int, seconds: int, source: count[int]) -> list[oracle.Row]:
    """Produce rows at a steady rate; return them in their order."""
    chosen = random.Random(rate)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "partitioner": "murmur2_random"}
    )
    rows: list[oracle.Row] = []
    begun = time.monotonic()
    while len(rows) < rate * seconds:
        due = min(int((time.monotonic() - begun) * rate), rate * seconds)
        for _ in range(due - len(rows)):
            row, value = message(chosen, next(source), ACCOUNTS * rate)
            producer.produce("transactions", value, row.account_id)
            rows.append(row)
        producer.poll(0)
        time.sleep(TICK)
    producer.flush()
    return rows


def message(chosen: random.Random, number: int, accounts: int) -> tuple[oracle.Row, bytes]:
    """A transaction of now, and its message."""
    now = time.time_ns() // 1_000_000
    row = oracle.Row(f"{chosen.randrange(accounts)}", now * 1000, chosen.choice(AMOUNTS), str(number))
    fields = {"ts": now, "accountId": row.account_id, "amount": row.amount, "transaction_id": row.source}
    return row, json.dumps(fields).encode()


def expected(rows: list[oracle.Row]) -> set[tuple[str, str]]:
    pairs = oracle.alerts(rows, 1.0, 500.0, 60 * oracle.SECOND)
    return {(small.source, large.source) for small, large in pairs}


def alerts(broker: Broker) -> list[tuple[tuple[str, str], float]]:
    """The alerts of the topic: the two transactions, and the milliseconds from the larger one's message to it."""
    found = []
    for message in broker.messages("alerts"):
        event = json.loads(message.value())
        data = event["data"]
        appended = datetime.fromisoformat(event["transactiontime"]).timestamp() * 1000
        found.append(
            (tuple(part["transaction_id"] for part in data["evidence"]), message.timestamp()[1] - appended),
        )
    return found


def until_raised(broker: Broker, truth: set[tuple[str, str]]) -> int:
    """Wait until alerts are raised, or none comes any more; return how many are missing."""
    missing, last, deadline = len(truth), -1, time.monotonic() + PATIENCE
    while missing and time.monotonic() < deadline and (missing != last or missing == len(truth)):
        time.sleep(5)
        missing, last = len(truth - {pair for pair, _ in alerts(broker)}), missing
    return missing


def figures(broker: Broker, truth: set[tuple[str, str]], measured: set[str]) -> dict[str, float]:
    raised = [(pair, waited) for pair, waited in alerts(broker) if pair in truth]
    waits = np.array([waited for (_, large), waited in raised if large in measured])
    percentiles = {f"p{q:g}": round(float(np.percentile(waits, q))) for q in (50, 95, 99, 99.9)}
    return {
        "alerts": len(truth),
        "measured": len(waits),
        **percentiles,
        "max": round(float(waits.max())),
        "share_over_1_s": round(float((waits > 1000).mean()), 4),
        "raised_again": len(raised) - len({pair for pair, _ in raised}),
    }


if __name__ == "__main__":
    main()
