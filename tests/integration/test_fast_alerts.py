"""The topic of fast alerts of a real broker: each message reaches bronze once, and the lanes are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake.appender import Appender
from fraudlake.lake.lake import Lake
from fraudlake.operations.status import status
from fraudlake.sources import kafka_source
from fraudlake.streams import ingest, stream

from .broker import Broker

pytestmark = pytest.mark.stream

MARCH_7 = 1772841600000
"""Milliseconds since 1970 of the day's beginning (UTC)."""


def iso(milliseconds: int, timespec: str = "milliseconds") -> str:
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def event(alert_id: str, at: int, partition: int, offset: int, appended: int, **data: Any) -> bytes:
    """An event as the fast lane writes it, by hand: of account 1 at a time in milliseconds since 1970."""
    columns = {
        "alert_id": alert_id,
        "rule": "small_then_large",
        "account_id": "1",
        "transaction_id": f"large of {alert_id}",
        "timestamp": iso(at, "microseconds"),
        "amount": 900.0,
        "kind": "small_then_large",
        "evidence": [{"transaction_id": f"small of {alert_id}", "timestamp": iso(at - 1000, "microseconds")}],
        "rule_version": None,
        "detected_at": iso(appended + 20, "microseconds"),
    }
    message = {
        "specversion": "1.0",
        "id": alert_id,
        "source": "/fraudlake/realtime",
        "type": "fraudlake.alert.v1",
        "subject": "1",
        "time": iso(appended + 20, "microseconds"),
        "datacontenttype": "application/json",
        "data": {**columns, **data},
        "transactionpartition": partition,
        "transactionoffset": offset,
        "transactiontime": iso(appended),
    }
    return json.dumps(message).encode()


def run(lake: Lake, *chosen: Callable[[Lake], list[stream.Stream]]) -> dict[str, int]:
    """Run steps over what is there; the rows that each stream read."""
    return {done.step: done.rows for step in chosen for done in stream.run(lake, step(lake), "available-now")}


@pytest.fixture
def open_lake(lake: Any, broker: Broker) -> Callable[..., Any]:
    """Open this test's lake on two topics."""

    def open_(topic: str, **values: Any) -> Any:
        topics = {"topic": topic, "fast_alerts_topic": f"{topic}-fast"}
        return lake(**{"source": "kafka", "bootstrap_servers": broker.bootstrap_servers, **topics, **values})

    return open_


@pytest.fixture
def topics(broker: Broker) -> Callable[[str], None]:
    def create(name: str) -> None:
        broker.create_topic(name, partitions=2)
        broker.create_topic(f"{name}-fast", partitions=2)

    return create


def test_each_message_is_a_row_by_its_place_and_what_is_no_alert_has_the_reason(
    broker: Broker, topics: Any, open_lake: Any
) -> None:
    topics("lanes")
    first, garbage = event("a", MARCH_7, 1, 4, MARCH_7 + 125), b'{"data": {}}'
    broker.produce("lanes-fast", [("1", first, 0), ("1", garbage, 0), (None, None, 0), ("1", first, 1)])
    lake = open_lake("lanes")

    assert status(lake).source.fast_alerts == {"messages": 0, "alerts": 0, "rejected": 0, "lag": 4}
    assert any(gap.startswith("4 fast alerts are not in bronze yet") for gap in status(lake).gaps)
    assert run(lake, ingest.streams) == {"ingest_kafka": 0, "ingest_fast_alerts": 4}
    assert run(lake, ingest.streams) == {"ingest_kafka": 0, "ingest_fast_alerts": 0}
    assert status(lake).source.fast_alerts == {"messages": 4, "alerts": 1, "rejected": 2, "lag": 0}
    assert status(lake).gaps == []

    columns = ("_partition", "_offset", "alert_id", "_error", "value")
    rows = lake.read(tables.BRONZE_FAST_ALERTS).orderBy("_partition", "_offset")
    assert [tuple(row) for row in rows.select(*columns).collect()] == [
        (0, 0, "a", None, first),
        (0, 1, None, "data.alert_id is missing", garbage),
        (0, 2, None, "tombstone", None),
        (1, 0, "a", None, first),
    ]
    assert lake.store.count(tables.BRONZE_TRANSACTIONS) == 0
    (message,) = [one for one in broker.messages("lanes-fast") if (one.partition(), one.offset()) == (1, 0)]
    times = "unix_millis(transaction_appended_at)", "unix_millis(appended_at)", "unix_millis(timestamp)"
    (row,) = (
        rows.where("_partition = 1")
        .selectExpr(
            *times,
            "transaction_partition",
            "transaction_offset",
            "amount",
            "unix_millis(first_timestamp)",
            "CAST(date AS STRING)",
            "_topic",
        )
        .collect()
    )
    assert tuple(row) == (
        MARCH_7 + 125,
        message.timestamp()[1],
        MARCH_7,
        1,
        4,
        900.0,
        MARCH_7 - 1000,
        "2026-03-07",
        "lanes-fast",
    )


@pytest.mark.usefixtures("each_writer")
def test_a_micro_batch_that_was_cut_behind_its_commit_adds_nothing_when_it_is_repeated(
    broker: Broker, topics: Any, open_lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics("lanes-cut")
    broker.produce("lanes-cut-fast", [("1", event(str(number), MARCH_7, 0, number, MARCH_7), 0) for number in range(9)])
    append = Appender.append

    def cut(appender: Appender, lake: Lake, rows: Any, table: tables.Table, *others: Any, **options: Any) -> None:
        append(appender, lake, rows, table, *others, **options)
        if table is tables.BRONZE_FAST_ALERTS:
            raise RuntimeError("cut behind the commit")

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "append", cut)
        with pytest.raises(FraudlakeError, match="ingest_fast_alerts failed"):
            run(open_lake("lanes-cut"), ingest.streams)
    lake = open_lake("lanes-cut")
    assert lake.store.count(tables.BRONZE_FAST_ALERTS) == 9
    broker.produce("lanes-cut-fast", [("1", event("9", MARCH_7, 0, 9, MARCH_7), 0)])
    run(lake, ingest.streams)

    ids = sorted(row["alert_id"] for row in lake.read(tables.BRONZE_FAST_ALERTS).collect())
    assert ids == [str(number) for number in range(10)]


@pytest.mark.long
def test_a_topic_of_fast_alerts_that_is_not_there_or_another_one_is_one_line(
    broker: Broker, topics: Any, open_lake: Any
) -> None:
    topics("lanes-other")
    run(open_lake("lanes-other"), ingest.streams)
    with pytest.raises(UsageError, match="reads the Kafka topic 'lanes-other-fast': for --fast-alerts-topic lanes use"):
        ingest.streams(open_lake("lanes-other", fast_alerts_topic="lanes"))
    with pytest.raises(FraudlakeError, match=r"no topic 'nowhere': .* name another with --fast-alerts-topic"):
        kafka_source.fast_alerts_lag(open_lake("lanes-other", fast_alerts_topic="nowhere", checkpoints="/nowhere"))
