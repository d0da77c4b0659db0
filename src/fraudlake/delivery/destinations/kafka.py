"""Kafka: the destination that sends each event to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.delivery.destination import Destination, required
from fraudlake.settings.delivery import DeliveryTopic

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings


def sink(settings: Settings, lake: Lake) -> Sink:
    """Return the sink of a topic, which writes through Spark."""
    from fraudlake.delivery.kafka import KafkaSink
    from fraudlake.kafka import client

    topic = required(settings.delivery_topic, "delivery_topic")
    required(settings.bootstrap_servers, "bootstrap_servers")
    return KafkaSink(topic, client.options(settings), lake.session)


DESTINATION = Destination("kafka", sink, DeliveryTopic, shared=("bootstrap_servers", "kafka_secret"))
