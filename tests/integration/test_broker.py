from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from .broker import Broker

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_end_offsets_count_what_was_produced_to_each_partition(broker: Broker) -> None:
    broker.create_topic("counted", partitions=3)

    broker.produce("counted", [("1", b"a", 0), ("1", b"b", 0), ("2", b"c", 2)])

    assert broker.end_offsets("counted") == {0: 2, 1: 0, 2: 1}


def test_keys_and_tombstones_arrive_as_they_were_produced(broker: Broker) -> None:
    broker.create_topic("kept", partitions=1)

    broker.produce("kept", [("1", b"a", None), (b"1", None, None), (None, b"b", None)])

    found = [(message.key(), message.value()) for message in broker.messages("kept")]
    assert found == [(b"1", b"a"), (b"1", None), (None, b"b")]


def test_messages_of_one_key_share_a_partition(broker: Broker) -> None:
    broker.create_topic("keyed", partitions=4)

    broker.produce("keyed", [("account", b"x", None)] * 10)

    assert sorted(broker.end_offsets("keyed").values()) == [0, 0, 0, 10]


def test_a_topic_takes_settings(broker: Broker) -> None:
    broker.create_topic("small", partitions=1, max_message_bytes=1000)

    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        broker.produce("small", [(None, os.urandom(2000), None)])


def test_an_unknown_topic_is_refused(broker: Broker) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        broker.produce("nowhere", [(None, b"x", None)])


def test_added_partitions_can_be_written_at_once(broker: Broker) -> None:
    broker.create_topic("growing", partitions=1)
    broker.produce("growing", [(None, b"x", 0)])

    broker.add_partitions("growing", 3)
    broker.produce("growing", [(None, b"y", 2)])

    assert broker.end_offsets("growing") == {0: 1, 1: 0, 2: 1}


def test_deleted_records_move_the_beginning_and_not_the_end(broker: Broker) -> None:
    broker.create_topic("deleted")
    broker.produce("deleted", [(None, str(n).encode(), n % 2) for n in range(10)])

    broker.delete_records("deleted", {0: 3})

    assert broker.begin_offsets("deleted") == {0: 3, 1: 0}
    assert broker.end_offsets("deleted") == {0: 5, 1: 5}
    assert [message.value() for message in broker.messages("deleted")] == [b"6", b"8", b"1", b"3", b"5", b"7", b"9"]


def test_a_restart_keeps_the_address_and_the_data(broker: Broker) -> None:
    broker.create_topic("restarted", partitions=1)
    broker.produce("restarted", [(None, b"x", 0)])
    address = broker.bootstrap_servers

    broker.restart()

    assert broker.bootstrap_servers == address
    assert broker.end_offsets("restarted") == {0: 1}


def test_a_killed_broker_starts_again_on_what_it_had_acknowledged(broker: Broker) -> None:
    broker.create_topic("killed", partitions=1)
    broker.produce("killed", [(None, b"x", 0)])

    broker.kill()
    assert broker.pid is None
    broker.start()
    broker.produce("killed", [(None, b"y", 0)])

    assert [message.value() for message in broker.messages("killed")] == [b"x", b"y"]


def test_the_sasl_listener_accepts_the_password(broker: Broker) -> None:
    broker.create_topic("secret")

    assert "secret" in _sasl_client(broker, broker.password, []).list_topics(timeout=10).topics


def test_the_sasl_listener_refuses_a_wrong_password(broker: Broker) -> None:
    errors: list[KafkaError] = []

    client = _sasl_client(broker, "wrong", errors)

    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(1)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]


def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    host, port = broker.bootstrap_servers.split(":")

    with socket.socket() as taken:
        taken.bind((host, int(port)))
        with pytest.raises(RuntimeError, match="Address already in use"):
            broker.start()

    assert broker.pid is None


def test_a_broker_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    run = context.Process(target=_run, args=(tmp_path, sender))
    run.start()
    assert receiver.poll(60), "the broker did not start"
    host, port = receiver.recv().split(":")

    os.kill(run.pid or 0, signal.SIGKILL)
    run.join()

    assert _refuses_soon(host, int(port))


def _sasl_client(broker: Broker, password: str, errors: list[KafkaError]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": broker.user,
            "sasl.password": password,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )


def _run(folder: Path, sender: Connection) -> None:
    broker = Broker(folder)
    broker.start()
    sender.send(broker.bootstrap_servers)
    signal.pause()


def _refuses_soon(host: str, port: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) != 0:
                return True
        time.sleep(0.05)
    return False
