"""The fast lane, as a separate process, between the topics of a real broker."""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Message, Producer

from fraudlake.detection import evidence, rule_table
from fraudlake.keyed.entity_key import THE_ACCOUNT
from fraudlake.lake import open_lake
from fraudlake.rules import rule_file
from fraudlake.rules.columns import query_columns
from fraudlake.rules.kinds.threshold import ThresholdRule
from fraudlake.settings import Settings
from fraudlake_lane.lane import FIRST_BATCHES
from tests import oracle, plain_lake
from tests.integration.broker import Broker, Outgoing

RULES = """\
[[rules]]
name = "small_then_large"
small_below = 1.0
large_above = 500.0
within = "1 minute"

[[rules]]
name = "ten_then_hundred"
small_below = 10.0
large_above = 100.0
within = "20 seconds"
"""
THRESHOLDS = (
    {"name": "busy", "aggregate": "count", "window": "1 minute", "above": 7},
    {"name": "spent", "aggregate": "sum", "window": "90 s", "above": 2000},
    {"name": "on_average", "aggregate": "mean", "window": "2 minutes", "above": 500},
    {"name": "only_large", "aggregate": "min", "window": "45 s", "above": 400},
    {"name": "only_small", "aggregate": "max", "window": "30 s", "below": 5},
    {"name": "varied", "aggregate": "distinct", "window": "1 minute", "above": 5},
    {"name": "mostly_large", "aggregate": "quantile", "quantile": 0.25, "window": "1 minute", "above": 99},
    {"name": "repeated", "aggregate": "changed", "window": "30 s", "below": 1},
    {"name": "quick", "aggregate": "seconds_since_last", "window": "1 minute", "below": 2},
    {"name": "little", "aggregate": "ratio_to_mean", "window": "2 minutes", "below": 0.05},
)
for fields in THRESHOLDS:
    entry = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    RULES += f'\n[[rules]]\nkind = "threshold"\n{entry}\n'
LIMITS = {"small_then_large": (1.0, 500.0, 60_000_000), "ten_then_hundred": (10.0, 100.0, 20_000_000)}
AMOUNTS = (0.5, 0.99, 1.0, 7.25, 10.0, 99.0, 100.0, 250.5, 500.0, 750.75)
VERSIONS = {str(fields["name"]): 1 for fields in THRESHOLDS} | {"small_then_large": 1, "ten_then_hundred": 2}
PATIENCE = 300  # seconds, which only a failure uses up


def traffic(seed: int, rows: int, begin: int) -> list[oracle.Row]:
    """Rows of twelve accounts in order, from some seconds to some minutes apart within an account."""
    chosen = random.Random(seed)
    times = (begin + second * oracle.SECOND for second in range(rows))
    accounts = [f"account-{number}" for number in range(12)]
    return [oracle.Row(chosen.choice(accounts), at, chosen.choice(AMOUNTS), str(n)) for n, at in enumerate(times)]


def message(row: oracle.Row) -> Outgoing:
    fields = {"ts": row.time // 1000, "accountId": row.account_id, "amount": row.amount, "alert": False}
    return row.account_id, json.dumps(fields | {"transaction_id": row.source}).encode(), None


def produce_at(broker: Broker, topic: str, partition: int, *rows: oracle.Row) -> None:
    """Produce rows to a partition, each as if Kafka had got it at its own time."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for row in rows:
        key, value, _ = message(row)
        producer.produce(topic, value, key, partition, timestamp=row.time // 1000)
    assert producer.flush(PATIENCE) == 0


def expected(rows: list[oracle.Row]) -> set[tuple[str, str, str]]:
    return {
        (name, small.source, large.source)
        for name, limits in LIMITS.items()
        for small, large in oracle.alerts(rows, *limits)
    }


def raised(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value()) for message in broker.messages(topic)]


def pairs(events: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    datas = [event["data"] for event in events if event["data"]["kind"] == "small_then_large"]
    return {(data["rule"], *(part["transaction_id"] for part in data["evidence"])) for data in datas}


def beyond(events: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """What the lane says of thresholds, in texts; rows of 1970, which :func:`between_bad_ones` adds, have their own."""
    datas = [event["data"] for event in events if event["data"]["kind"] == "threshold"]
    datas = [data for data in datas if not data["timestamp"].startswith("1970")]
    columns = ("rule", "alert_id", "account_id", "transaction_id", "explanation")
    return {
        (
            *(data[name] for name in columns),
            str([(row["transaction_id"], row["amount"], micros(row["timestamp"])) for row in data["evidence"]]),
            numbers(data["measures"]),
        )
        for data in datas
    }


def expected_beyond(
    rows: list[oracle.Row], thresholds: Sequence[Mapping[str, object]] = THRESHOLDS
) -> set[tuple[str, ...]]:
    """What the exact lane says of thresholds on rows in event-time order."""
    table = pa.table(
        {
            **{name: [getattr(row, name) for row in rows] for name in ("account_id", "amount", "position")},
            "transaction_id": [row.source for row in rows],
            "timestamp": pa.array([row.time for row in rows], pa.timestamp("us", "UTC")),
            "source": ["topic"] * len(rows),
            "label": [False] * len(rows),
        }
    )
    said = set()
    for rule in map(ThresholdRule.model_validate, thresholds):
        name, compiled = rule.name, rule.compile(query_columns({}))
        alerts = evidence.table(table, [*compiled.evaluate(table).alerts], compiled.columns, THE_ACCOUNT)
        for alert in alerts.to_pylist():
            ids = alert["transaction_ids"]
            alert_id = hashlib.sha256("|".join((name, ids[0], ids[-1])).encode()).hexdigest()[:32]
            counted = str([*zip(ids, alert["amounts"], alert["times"], strict=True)])
            measures = numbers(json.loads(alert["measures"]))
            said.add((name, alert_id, alert["account_id"], ids[-1], evidence.story(alert), counted, measures))
    return said


def numbers(measures: Mapping[str, Any]) -> str:
    """Measures as numbers: in both lanes' topics, Spark writes small ones with an exponent, and Python does not."""
    return str({name: float(value) for name, value in measures.items()})


def micros(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1_000_000)


def until(holds: Callable[[], bool], lane: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert lane.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def create_topics(folder: Path, broker: Broker, partitions: int) -> tuple[str, str]:
    """The topics of :func:`running`."""
    transactions, alerts = f"{folder.name}-transactions", f"{folder.name}-alerts"
    broker.create_topic(transactions, partitions)
    broker.create_topic(alerts, 1)
    return transactions, alerts


@contextmanager
def running(folder: Path, broker: Broker, batch: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The lane on the topics ``transactions`` and ``alerts`` of a folder's name, which it ends by force if need be."""
    log = folder / "output"
    program = str(Path(sys.executable).with_name("fraudlake"))
    command = [program, "--lake", str(folder / "lake"), "realtime"]
    command += ["--bootstrap-servers", broker.bootstrap_servers, "--topic", f"{folder.name}-transactions"]
    command += ["--fast-alerts-topic", f"{folder.name}-alerts", "--realtime-batch", batch]
    with log.open("ab") as output:
        lane = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True)
    try:
        yield lane, log
    finally:
        lane.kill()
        lane.wait()


def make_lake(folder: Path) -> None:
    """Make a lake whose rules are :data:`RULES`, in :data:`VERSIONS`; another rule has retired."""
    lake = open_lake(Settings(lake=plain_lake.make(folder / "lake")), must_exist=True)
    former = RULES.replace("100.0", "200.0") + RULES.partition("\n\n")[0].replace("small_then_large", "former")
    file = folder / "rules.toml"
    for text in (former, RULES):
        file.write_text(text)
        rule_table.apply(lake, rule_file.read(file), "tests", None)


def test_alerts_are_those_of_the_oracle_through_bad_messages_late_rows_a_kill_and_more_partitions(
    tmp_path: Path, broker: Broker
) -> None:
    transactions, alerts = create_topics(tmp_path, broker, 2)
    make_lake(tmp_path)
    now = time.time_ns() // 1_000_000 * 1000
    rows = traffic(1, 540, now - 600 * oracle.SECOND)
    early, truth, more = expected(rows[:180]), expected(rows[:360]), expected(rows)
    assert early < truth < more and {rule for rule, _, _ in early} == set(LIMITS)
    assert {rule for rule, *_ in expected_beyond(rows[:180])} == {fields["name"] for fields in THRESHOLDS}
    small, late, large = (
        oracle.Row("moved", now - second * oracle.SECOND, amount, f"moved-{second}")
        for second, amount in ((20, 0.5), (15, 0.75), (10, 900.0))
    )
    moved = [small, late, large]
    first, second = ({(rule, row.source, large.source) for rule in LIMITS} for row in (small, late))

    with running(tmp_path, broker, "20 seconds") as (lane, log):
        until(lambda: "Ctrl-C" in log.read_text(), lane, log)
        broker.produce(transactions, between_bad_ones(rows[:180], now))
        until(lambda: pairs(raised(broker, alerts)) >= early, lane, log)
        until(lambda: "batches" in log.read_text(), lane, log)
        assert pairs(raised(broker, alerts)) == early
        assert beyond(raised(broker, alerts)) == expected_beyond(rows[:180])

        assert "rules have changed" not in log.read_text()
        lake = open_lake(Settings(lake=tmp_path / "lake"), must_exist=True)
        rule_table.retire(lake.store, "ten_then_hundred", "tests", None)

        broker.produce(transactions, between_bad_ones(rows[180:360], now))
        produce_at(broker, transactions, 0, small, large)
        until(lambda: pairs(raised(broker, alerts)) >= truth | first, lane, log)
        # A row that comes after one that Kafka got later: another partition is read more slowly.
        produce_at(broker, transactions, 1, late)
        until(lambda: pairs(raised(broker, alerts)) >= truth | first | second, lane, log)
        until(lambda: "rules have changed" in log.read_text(), lane, log)
        lane.kill()
        lane.wait()
    assert pairs(raised(broker, alerts)) == truth | first | second
    assert beyond(raised(broker, alerts)) == expected_beyond([*rows[:360], *moved])

    rule_table.set_status(lake.store, "ten_then_hundred", "live", "tests", None)

    # Accounts move to other partitions, which are read in parallel to those with their earlier rows.
    broker.add_partitions(transactions, 3)
    broker.produce(transactions, map(message, rows[360:]))
    with running(tmp_path, broker, "10 minutes") as (lane, log):
        until(lambda: pairs(raised(broker, alerts)) >= more, lane, log)
        # What was raised before an account's rows in another partition were read again stays.
        until(lambda: beyond(raised(broker, alerts)) >= expected_beyond([*rows, *moved]), lane, log)
        lane.send_signal(signal.SIGINT)
        assert lane.wait(PATIENCE) == 130, log.read_text()
    events = raised(broker, alerts)
    of_pairs = [event for event in events if event["data"]["kind"] == "small_then_large"]
    assert len({event["id"] for event in of_pairs}) == len(pairs(events))
    assert_each_tells_its_transactions(of_pairs, [*rows, *moved], broker.messages(transactions))


def test_a_backlog_longer_than_the_lateness_loses_nothing_where_a_partition_is_read_faster(
    tmp_path: Path, broker: Broker
) -> None:
    transactions, alerts = create_topics(tmp_path, broker, 1)
    begin = time.time_ns() // 1_000_000 * 1000 - 4 * oracle.HOUR
    # Two rows of an account are 30 seconds apart; the whole is more than a batch of five seconds reads.
    chosen = random.Random(6)
    rows = [
        oracle.Row(f"account-{n % 200}", begin + n * 150 * oracle.SECOND // 1000, chosen.choice(AMOUNTS), str(n))
        for n in range(90_000)
    ]
    newest = oracle.Row("newest", begin + 4 * oracle.HOUR, 1.0, "newest")
    truth = {pair for pair in expected(rows) if pair[0] == "small_then_large"}
    assert max(row.time for row in rows) - begin > 3 * oracle.HOUR and len(truth) > 100
    produce_at(broker, transactions, 0, *rows)
    broker.add_partitions(transactions, 2)
    produce_at(broker, transactions, 1, newest)
    with running(tmp_path, broker, "5 seconds") as (lane, log):
        until(lambda: pairs(raised(broker, alerts)) >= truth, lane, log)
        until(lambda: reported(log, "messages")[-1] > len(rows), lane, log)
        until(lambda: reported(log, "batches")[-1] >= FIRST_BATCHES, lane, log)
        # From now on the watermark moves, and the state loses what it has passed.
        produce_at(broker, transactions, 1, newest._replace(source="next"))
        until(lambda: reported(log, "messages")[-1] > len(rows) + 1, lane, log)
        until(lambda: reported(log, "rows")[-1] < 1000, lane, log)
    first, *_, last = zip(*(reported(log, what) for what in ("messages", "late", "rows")), strict=True)
    assert first[0] < len(rows) and last[1] == 0, log.read_text()
    assert max(reported(log, "rows")) > 200 * 22  # each account has a window for every ten minutes of the backlog
    assert pairs(raised(broker, alerts)) == truth


def reported(log: Path, what: str) -> list[int]:
    """A figure of each line that a lane printed after a batch."""
    return [int(number.replace(",", "")) for number in re.findall(rf"([0-9,]+) {what}", log.read_text())]


def between_bad_ones(rows: list[oracle.Row], now: int) -> list[Outgoing]:
    """The messages of rows, each after one that no lane may take for a transaction."""
    messages: list[Outgoing] = []
    for number, row in enumerate(rows):
        bad = row._replace(source=f"bad-{row.source}", amount=0.5)
        key, value, _ = message(bad)
        assert isinstance(value, bytes)
        messages += [
            [(key, b"no json", None)],
            [(None, b'{"accountId": null}', None)],
            [(key, value.replace(b"0.5", b'"0.5"'), None)],
            [message(bad._replace(time=now + 10**15))],
            [message(bad._replace(time=0))],
        ][number % 5]
        messages.append(message(row))
    return messages


def assert_each_tells_its_transactions(
    events: list[dict[str, Any]], rows: list[oracle.Row], messages: list[Message]
) -> None:
    """An event has the fields, and the place in the topic, of its two rows."""
    places = {
        (message.partition(), message.offset()): (json.loads(message.value()), message.timestamp()[1])
        for message in messages
        if b"transaction_id" in message.value()
    }
    of_row = {row.source: row for row in rows}
    for event in events:
        data = event["data"]
        assert data["rule_version"] == VERSIONS[data["rule"]]
        small, large = (of_row[part["transaction_id"]] for part in data["evidence"])
        parts = "|".join((data["rule"], small.source, large.source))
        assert event["id"] == data["alert_id"] == hashlib.sha256(parts.encode()).hexdigest()[:32]
        times = [datetime.fromtimestamp(row.time // 1_000_000, UTC) for row in (small, large)]
        begin, end = (time.strftime("%Y-%m-%d %H:%M:%S") for time in times)
        seconds = str((large.time - small.time) // 1000 / 1000)
        assert data["measures"] == {"seconds_between": seconds}
        assert data["explanation"] == (
            f"Account {large.account_id}: SMALL {small.amount:.2f} at {begin}, "
            f"LARGE {large.amount:.2f} at {end} (UTC); seconds_between {seconds}."
        )
        assert datetime.fromisoformat(data["timestamp"]) == datetime.fromtimestamp(large.time / 1e6, UTC)
        assert event["source"] == "/fraudlake/realtime" and event["subject"] == large.account_id
        source, appended = places[event["transactionpartition"], event["transactionoffset"]]
        assert source["transaction_id"] == large.source
        assert datetime.fromisoformat(event["transactiontime"]) == datetime.fromtimestamp(appended / 1000, UTC)
        assert datetime.fromisoformat(event["time"]).timestamp() * 1000 >= appended
