"""The examples that need a broker, on a real one."""

from __future__ import annotations

import pytest

from examples import program
from examples.flink_phrasebook import kafka_producer
from fraudlake.errors import FraudlakeError
from tests.integration.broker import Broker

from .conftest import Printed

pytestmark = [pytest.mark.stream, pytest.mark.long]


def test_a_topic_is_a_source(printed: Printed, broker: Broker) -> None:
    broker.create_topic("events")
    lines = printed("kafka_source", bootstrap_servers=broker.bootstrap_servers)
    assert lines == ["micro-batch 0", "flink rocks", "hello flink", "hello world"]


def test_a_message_that_is_no_json_does_not_stop_the_stream(printed: Printed, broker: Broker) -> None:
    broker.create_topic("test_source_topic")
    lines = printed("kafka_json_source", bootstrap_servers=broker.bootstrap_servers)
    assert lines == ["micro-batch 0", "-1 unreadable: no JSON", "1 hi", "2 hello"]


def test_rows_become_messages(printed: Printed, broker: Broker) -> None:
    broker.create_topic("test_sink_topic")
    lines = printed("kafka_producer", bootstrap_servers=broker.bootstrap_servers)
    assert lines == ['{"id":1,"text":"aaa|bb"}', '{"id":2,"text":"bb|a"}', '{"id":3,"text":"aaa|a"}']
    assert sorted(str(message.value(), "utf-8") for message in broker.messages("test_sink_topic")) == lines


def test_a_reader_drops_what_was_written_twice(printed: Printed, broker: Broker) -> None:
    broker.create_topic("output-topic")
    lines = printed("kafka_sink", bootstrap_servers=broker.bootstrap_servers)
    assert lines == ["2 times written, taken once", "flink rocks", "hello flink", "hello world"]
    assert len(broker.messages("output-topic")) == 6


def test_transactions_from_kafka_are_scored_into_delta(printed: Printed, broker: Broker) -> None:
    broker.create_topic("fraud-events")
    assert printed("score_kafka", bootstrap_servers=broker.bootstrap_servers) == [
        "1 10.0 0.0 0.0",
        "2 800.0 1.0 1.0",
        "3 30.0 1.0 0.0",
        "4 600.0 1.0 1.0",
        "true prediction rate 0.75",
    ]


def test_a_topic_that_is_not_there_is_one_line(spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "TOPIC", "nowhere")
    with pytest.raises(FraudlakeError, match="lacks the topic that this example names: create it with"):
        program.run(kafka_producer.main, bootstrap_servers=broker.bootstrap_servers)
