"""The lanes' agreement: a topic goes through the real steps, fast alerts are made by hand, and the counts, too."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.bronze import fast_alerts, messages
from fraudlake.gold import lane_agreement
from fraudlake.lake import Lake
from fraudlake.operations.status import status
from fraudlake.streams import aggregate, detect, lanes, refine, stream
from tests import oracle

pytestmark = pytest.mark.stream

TOPICS = {"source": "kafka", "bootstrap_servers": "broker:9092", "topic": "payments", "fast_alerts_topic": "fast"}
IN_TIME = {"ordering": "event_time", "max_out_of_orderness": "15 minutes", "buckets": 2, "shuffle_partitions": 2}
"""A row of more than 15 minutes ago is late, and one of the last 15 minutes waits."""
MARCH_7 = date(2026, 3, 7)
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


def at(time: str) -> datetime:
    """A time after noon, in minutes and seconds."""
    minutes, seconds = time.split(":")
    return NOON + timedelta(minutes=int(minutes), seconds=int(seconds))


def message(account: str, time: str, amount: float, name: str | None = None) -> bytes:
    """A transaction; its id is the account and its name, which is by default whether it is small."""
    name = name or ("small" if amount < 1 else "large")
    fields = {"dt": at(time).isoformat(), "accountId": account, "amount": amount, "alert": False}
    return json.dumps({**fields, "transaction_id": f"{account} {name}"}).encode()


def pair(account: str, small: str, large: str) -> list[bytes]:
    return [message(account, small, 0.5), message(account, large, 900.0)]


def unreadable(value: bytes) -> bytes:
    """A message with a key twice, which the fast lane reads and ingest does not."""
    return value[:-1] + b', "alert": false}'


def produce(lake: Lake, first: int, values: list[bytes]) -> None:
    """Messages of the topic's partition 0, from an offset on, are in bronze."""
    columns = {"value": values, "topic": ["payments"] * len(values), "partition": [0] * len(values)}
    offsets = range(first, first + len(values))
    types = dict(zip(messages.KAFKA_COLUMNS, (pa.binary(), pa.string(), pa.int32(), pa.int64()), strict=True))
    batch = pa.record_batch({**columns, "offset": offsets}, schema=pa.schema(types))
    lake.writer(tables.BRONZE_TRANSACTIONS).write(pa.Table.from_batches(messages.read(iter([batch]))), "append")


def event(
    account: str,
    large: str,
    offset: int,
    latency: int = 20,
    rule: str = "small_then_large",
    partition: int = 0,
    names: tuple[str, str] = ("small", "large"),
    kind: str = "small_then_large",
) -> tuple[bytes, datetime]:
    """The message of a fast alert, and when it was appended: a latency (milliseconds) after its transaction was."""
    small_id, large_id = (f"{account} {name}" for name in names)
    alert_id = hashlib.sha256(f"{rule}|{small_id}|{large_id}".encode()).hexdigest()[:32]
    data = {"alert_id": alert_id, "rule": rule, "kind": kind, "account_id": account, "amount": 900.0}
    data |= {"transaction_id": large_id, "timestamp": at(large).isoformat()}
    small = {"transaction_id": small_id, "timestamp": (at(large) - timedelta(seconds=5)).isoformat()}
    data |= {"evidence": [small, {name: data[name] for name in small}]}
    appended = at(large) + timedelta(seconds=1)
    place = {"transactionpartition": partition, "transactionoffset": offset, "transactiontime": appended.isoformat()}
    return json.dumps({"data": data, **place}).encode(), appended + timedelta(milliseconds=latency)


def alert(lake: Lake, first: int, events: list[tuple[bytes, datetime]]) -> None:
    """Messages of the topic of fast alerts, from an offset on, are in bronze."""
    count = len(events)
    columns = {"value": [value for value, _ in events], "topic": ["fast"] * count, "partition": [0] * count}
    columns |= {"offset": range(first, first + count), "timestamp": [appended for _, appended in events]}
    kinds = (pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", "UTC"))
    batch = pa.record_batch(columns, schema=pa.schema(zip(fast_alerts.KAFKA_COLUMNS, kinds, strict=True)))
    lake.writer(tables.BRONZE_FAST_ALERTS).write(pa.Table.from_batches(fast_alerts.read(iter([batch]))), "append")


def run(lake: Lake, step: Callable[[Lake], list[stream.Stream]]) -> None:
    stream.run(lake, step(lake), "available-now")


def comparing(lake: Lake) -> stream.Stream:
    return next(query for query in aggregate.streams(lake) if query.step == "lane_agreement")


def compare(lake: Lake) -> dict[str, dict[str, Any]]:
    """Run the stream that compares the lanes; return what is not null and not 0, by rule."""
    stream.run(lake, [comparing(lake)], "available-now")
    return stored(lake)


def stored(lake: Lake) -> dict[str, dict[str, Any]]:
    rows = lake.store.rows(lane_agreement.TABLE).to_pylist()
    assert len({(row["date"], row["rule"]) for row in rows}) == len(rows)
    assert {row.pop("date") for row in rows} <= {MARCH_7}
    return {row.pop("rule"): {name: value for name, value in row.items() if value} for row in rows}


FIRST = [
    *pair("early", "0:00", "0:05"),  # 0: before the lane's first alert
    *pair("both", "0:10", "0:15"),  # 2
    # 4: by time between is before the small one, and in the topic between the two
    message("moved away", "0:30", 0.5),
    message("moved away", "0:25", 20.0, "between"),
    message("moved away", "0:35", 900.0),
    # 7: by time between the two, and in the topic after them
    *pair("moved between", "0:50", "0:55"),
    message("moved between", "0:52", 20.0, "between"),
    *pair("missed", "1:10", "1:15"),  # 10
    # 12: the exact lane sees no small transaction
    message("invented", "1:20", 2.0, "small"),
    message("invented", "1:25", 900.0),
    # 14: one of the two is quarantined
    message("bad large", "1:30", 0.5),
    unreadable(message("bad large", "1:35", 900.0)),
    unreadable(message("bad small", "1:40", 0.5)),
    message("bad small", "1:45", 900.0),
    # 18: a duplicate of the first one is between the two
    message("repeated", "2:00", 20.0, "first"),
    message("repeated", "2:01", 0.5),
    message("repeated", "2:00", 20.0, "first"),
    message("repeated", "2:05", 900.0),
    message("clock", "20:00", 20.0, "first"),  # 22
]
SECOND = [
    *pair("tardy", "0:20", "0:25"),  # 23: late in the exact lane
    *pair("slow", "8:00", "8:05"),  # 25: late in the fast lane only
    *pair("silent", "35:00", "35:05"),  # 27: no fast alert from 12:30 to 12:40
    *pair("both later", "45:00", "45:05"),  # 29
    message("clock", "90:00", 20.0, "second"),  # 31
    *pair("waiting", "80:00", "80:05"),  # 32: the exact lane has come to 13:15
    *pair("ahead", "74:00", "74:05"),  # 34: after the lane's last alert
]
EVENTS = [
    event("both", "0:15", 3, latency=30),
    event("moved between", "0:55", 8, latency=40),
    event("invented", "1:25", 13, latency=10),
    event("bad large", "1:35", 15),
    event("bad small", "1:45", 17),
    event("both", "0:15", 3, latency=90_000),  # after a restart
    event("tardy", "0:25", 24),
    event("both later", "45:05", 30),
    event("waiting", "80:05", 33),
    event("other rule", "1:00", 3, latency=7, rule="other_rule"),
    event("of another partition", "80:06", 7, partition=1),  # which the exact lane has not read
    event("both", "0:15", 3, latency=60_000),
    (b"no alert", NOON),
]
EXPECTED = {
    "small_then_large": {
        "both": 2,
        "only_fast": 7,
        "only_fast_pending": 2,  # waiting, of another partition
        "only_fast_late": 1,  # tardy
        "only_fast_quarantined": 2,  # bad large, bad small
        "only_fast_out_of_order": 1,  # moved between
        "only_fast_unknown": 1,  # invented
        "only_exact": 7,
        "only_exact_pending": 1,  # ahead
        "only_exact_not_running": 2,  # early, silent
        "only_exact_late": 1,  # slow
        "only_exact_quarantined": 1,  # repeated
        "only_exact_out_of_order": 1,  # moved away
        "only_exact_unknown": 1,  # missed
        "duplicates": 2,
        # Nine alerts: 10, six times 20, 30, 40 milliseconds.
        "latency_p50": 20.0,
        "latency_p95": 36.0,  # at 0.95 * 8 = 7.6 of the numbers 0 to 8
        "latency_p99": pytest.approx(39.2),
        "latency_max": 40.0,
    },
    "other_rule": {
        "only_fast": 1,
        "only_fast_not_running": 1,
        **dict.fromkeys(("latency_p50", "latency_p95", "latency_p99", "latency_max"), 7.0),
    },
}


def exact_lane(lake: Lake) -> None:
    for first, values in ((0, FIRST), (len(FIRST), SECOND)):
        produce(lake, first, values)
        run(lake, refine.streams)
        run(lake, detect.streams)


@pytest.mark.long
@pytest.mark.usefixtures("each_writer")
def test_each_alert_that_one_lane_has_is_counted_with_its_reason_and_a_repeated_micro_batch_changes_nothing(
    lake: Any,
) -> None:
    opened = lake(**TOPICS, **IN_TIME)
    exact_lane(opened)
    only_exact = compare(opened)["small_then_large"]
    assert only_exact == {"only_exact": 9, "only_exact_pending": 9}

    alert(opened, 0, EVENTS)
    assert compare(opened) == EXPECTED

    of_files = lake(**{**TOPICS, **IN_TIME, "source": "files"})  # whose status asks no broker
    shown = {"days": 1, "both": 2, "only_fast": 8, "only_exact": 7, "unknown": 2, "latency_p99": pytest.approx(39.2)}
    assert status(of_files).alerts.lanes == shown

    repeated = opened.session.createDataFrame([(MARCH_7, True)], "date DATE, is_fast BOOLEAN")
    comparing(opened).write(opened, repeated, 0)
    assert stored(opened) == EXPECTED

    others = opened.read(tables.BRONZE_FAST_ALERTS).where("rule = 'small_then_large'")
    lanes.recompute(opened, [MARCH_7], others)
    assert stored(opened) == {"small_then_large": EXPECTED["small_then_large"]}


@pytest.mark.long
def test_it_is_the_same_when_the_fast_lanes_alerts_come_first_and_in_parts(lake: Any) -> None:
    opened = lake(**TOPICS, **IN_TIME)
    alert(opened, 0, EVENTS[:7])
    assert compare(opened)["small_then_large"]["only_fast_pending"] == 6
    alert(opened, 7, EVENTS[7:])
    assert compare(opened)["small_then_large"]["only_fast_pending"] == 9
    exact_lane(opened)
    assert compare(opened) == EXPECTED


@pytest.mark.long
def test_an_alert_that_was_pending_gets_its_reason_although_no_other_alert_comes(lake: Any) -> None:
    opened = lake(**TOPICS, buckets=2, shuffle_partitions=2)
    alert(opened, 0, [event("invented", "1:25", 1)])
    assert compare(opened)["small_then_large"]["only_fast_pending"] == 1
    produce(opened, 0, [message("invented", "1:20", 2.0, "small"), message("invented", "1:25", 900.0)])
    run(opened, refine.streams)
    run(opened, detect.streams)
    assert compare(opened)["small_then_large"]["only_fast_unknown"] == 1


@pytest.mark.long
def test_on_rows_in_order_the_lanes_agree_and_a_repeated_message_has_an_equal_id(lake: Any) -> None:
    draw = random.Random(5)
    rows = [
        oracle.Row(draw.choice("abcd"), second * oracle.SECOND, draw.choice((0.5, 20.0, 900.0)), position=second)
        for second in range(240)
    ]
    times = [f"0:{row.position}" for row in rows]
    events = [
        event(large.account_id, times[large.position], large.position, names=(str(small.position), str(large.position)))
        for small, large in oracle.alerts(rows)
    ]
    assert len(events) > 10
    opened = lake(**TOPICS, buckets=2, shuffle_partitions=2)
    produce(opened, 0, [message(row.account_id, times[row.position], row.amount, str(row.position)) for row in rows])
    run(opened, refine.streams)
    run(opened, detect.streams)
    alert(opened, 0, [*events, *events])
    latency = dict.fromkeys(("latency_p50", "latency_p95", "latency_p99", "latency_max"), 20.0)
    counts = {"both": len(events), "duplicates": len(events)}
    assert compare(opened) == {"small_then_large": {**counts, **latency}}


@pytest.mark.long
def test_thresholds_are_compared_by_their_windows(lake: Any) -> None:
    # At the third row of an account within a minute.
    rule = {"kind": "threshold", "name": "thrice", "aggregate": "count", "window": "1 minute", "above": 2}
    opened = lake(**TOPICS, buckets=2, shuffle_partitions=2, rules=[rule])

    def rows(account: str, *times: str) -> list[bytes]:
        return [message(account, time, 20.0, time) for time in times]

    def crossed(account: str, first: str, last: str, offset: int) -> tuple[bytes, datetime]:
        return event(account, last, offset, rule="thrice", names=(first, last), kind="threshold")

    produce(
        opened,
        0,
        [
            *rows("both", "0:10", "0:20", "0:30"),  # 0
            *rows("missed", "0:10", "0:20", "0:30"),  # 3
            *rows("swapped", "0:10", "0:30", "0:20"),  # 6
            *rows("repeated", "0:10", "0:10", "0:40"),  # 9: the second one has the id of the first
            *rows("both later", "0:40", "0:50", "1:00"),  # 12
        ],
    )
    run(opened, refine.streams)
    run(opened, detect.streams)
    alert(
        opened,
        0,
        [
            crossed("both", "0:10", "0:30", 2),
            crossed("repeated", "0:10", "0:40", 11),
            crossed("both later", "0:40", "1:00", 14),
        ],
    )

    # The fast lane cannot run a rule by terminal: its alerts are not compared.
    raised = (
        opened.store.query(f"SELECT * FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS)
        .slice(0, 1)
        .to_pylist()[0]
    )
    others = pa.Table.from_pylist([raised | {"rule": "at_terminal", "entity": "terminal"}], tables.SILVER_ALERTS.schema)
    opened.writer(tables.SILVER_ALERTS).write(others, "append")

    compared = compare(opened)
    agreement = compared["thrice"]

    assert compared.keys() == {"thrice"}
    assert {name: count for name, count in agreement.items() if not name.startswith("latency")} == {
        "both": 2,
        "only_fast": 1,
        "only_fast_quarantined": 1,
        "only_exact": 2,
        "only_exact_out_of_order": 1,
        "only_exact_unknown": 1,
    }


def test_without_a_topic_of_fast_alerts_the_lanes_are_not_compared(lake: Any) -> None:
    assert "lane_agreement" not in {query.step for query in aggregate.streams(lake())}
