"""Alerts to a real broker, and through a process that is killed: nothing is lost, duplicates have equal ids."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake import Lake
from fraudlake.streams import deliver, stream
from tests.conftest import run
from tests.delivery.alerts import alert, raise_
from tests.delivery.receiver import listening
from tests.delivery.receiver import status as answer

from .broker import Broker
from .test_crash import FRAUDLAKE, kill_all, start, wait_for
from .test_kafka import tls

pytestmark = pytest.mark.stream

ALERTS = 450


def rows(lake: Lake) -> list[tuple[str, str]]:
    """Destination and status of each row of ``silver_deliveries``, which has each alert once for a destination."""
    stored = lake.store.rows(tables.SILVER_DELIVERIES)
    keys = list(zip(stored["destination"].to_pylist(), stored["alert_id"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return sorted(zip(stored["destination"].to_pylist(), stored["status"].to_pylist(), strict=True))


@pytest.mark.long
def test_alerts_are_messages_with_their_id_as_the_key(lake: Callable[..., Lake], broker: Broker) -> None:
    broker.create_topic("alerts-of-the-lake", partitions=2)
    opened = lake(bootstrap_servers=broker.bootstrap_servers, delivery_topic="alerts-of-the-lake")
    raise_(opened, *(alert(number) for number in range(30)))
    stream.run(opened, deliver.streams(opened, "kafka"), "available-now")

    messages = broker.messages("alerts-of-the-lake")
    events = [json.loads(message.value() or b"") for message in messages]
    assert [(message.key() or b"").decode() for message in messages] == [event["id"] for event in events]
    assert sorted(event["id"] for event in events) == [alert(number)["alert_id"] for number in range(30)]
    assert {event["data"]["explanation"] for event in events} == {alert(n)["explanation"] for n in range(30)}
    assert messages[0].headers() == [("content-type", b"application/cloudevents+json; charset=UTF-8")]
    assert rows(opened) == [("kafka", "delivered")] * 30


@pytest.mark.long
def test_a_broker_that_is_away_leaves_dead_letters(lake: Callable[..., Lake], broker: Broker) -> None:
    broker.create_topic("alerts-later", partitions=1)
    nobody = {"max.block.ms": "1000", "client.id": "fraudlake"}
    away = lake(bootstrap_servers="127.0.0.1:1", delivery_topic="alerts-later", kafka_options=nobody)
    raise_(away, alert(1), alert(2))
    stream.run(away, deliver.streams(away, "kafka"), "available-now")
    assert rows(away) == [("kafka", "dead")] * 2
    reasons = set(away.store.rows(tables.SILVER_DELIVERIES)["reason"].to_pylist())
    assert reasons == {"Kafka does not answer: check --bootstrap-servers, and security.protocol"}

    run(
        away.settings.lake,
        *("deliver", "--to", "kafka", "--retry-dead", "--delivery-topic", "alerts-later"),
        *("--bootstrap-servers", broker.bootstrap_servers),
    )
    assert len(broker.messages("alerts-later")) == 2
    assert rows(away) == [("kafka", "delivered")] * 2


@pytest.mark.long
def test_alerts_go_over_tls_and_an_expired_certificate_is_named(
    lake: Callable[..., Lake], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("alerts-tls", partitions=1)
    options = tls(broker, broker.authority, broker.password)
    expired = lake(
        bootstrap_servers=broker.expired_bootstrap_servers,
        delivery_topic="alerts-tls",
        kafka_options=json.loads(options),
    )
    raise_(expired, alert(1))
    stream.run(expired, deliver.streams(expired, "kafka"), "available-now")
    (row,) = expired.store.rows(tables.SILVER_DELIVERIES).to_pylist()
    assert (row["status"], row["reason"]) == (
        "dead",
        "Kafka shows a certificate that has expired: renew it on the brokers",
    )

    monkeypatch.setenv("FRAUDLAKE_KAFKA_OPTIONS", options)
    servers = ("--bootstrap-servers", broker.tls_bootstrap_servers, "--delivery-topic", "alerts-tls")
    run(expired.settings.lake, "deliver", "--to", "kafka", "--retry-dead", *servers)
    assert [message.key() for message in broker.messages("alerts-tls")] == [alert(1)["alert_id"].encode()]


@pytest.mark.long
def test_a_process_that_is_killed_while_it_delivers_loses_nothing(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lake().settings.lake
    raise_(lake(), *(alert(number) for number in range(ALERTS)))
    with listening() as receiver:
        receiver.always = 0.3
        receiver.plan.append(answer(503))
        monkeypatch.setenv("FRAUDLAKE_WEBHOOK_URL", receiver.url)
        process = start(FRAUDLAKE, "--lake", str(root), "deliver", "--to", "webhook")
        try:
            wait_for(lambda: len(receiver.taken) >= 2, process)
        finally:
            kill_all(process)
        assert rows(lake()) == []
        time.sleep(2)  # what the process had sent is on its way
        before = len(receiver.taken)
        receiver.always = 0.0
        run(root, "deliver", "--to", "webhook")

        events: dict[str, list[Any]] = {}
        for event in receiver.events:
            events.setdefault(event["id"], []).append(event)
        assert set(events) == {alert(number)["alert_id"] for number in range(ALERTS)}
        assert all(event == same[0] for same in events.values() for event in same)
        assert len(receiver.taken) - before == 5
        assert len(receiver.events) > ALERTS
    assert rows(lake()) == [("webhook", "delivered")] * ALERTS
