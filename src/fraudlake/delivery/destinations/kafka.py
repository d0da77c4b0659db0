"""Kafka: the destination that sends each event to a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from fraudlake.delivery.destination import Destination, required
from fraudlake.values import TOPIC, Topic

if TYPE_CHECKING:
    from fraudlake.delivery.sink import Sink
    from fraudlake.lake import Lake


class Kafka(BaseModel):
    """The topic; its brokers and their client are those of the source."""

    delivery_topic: Topic | None = Field(
        None, pattern=TOPIC, description="Kafka topic for delivered alerts, at bootstrap_servers."
    )


def sink(settings: Any, lake: Lake) -> Sink:
    """Return the sink of a topic, which writes through Spark."""
    from fraudlake.delivery.kafka import KafkaSink
    from fraudlake.kafka import client

    topic = required(settings.delivery_topic, "delivery_topic")
    required(settings.bootstrap_servers, "bootstrap_servers")
    return KafkaSink(topic, client.options(settings), lake.session)


DESTINATION = Destination("kafka", sink, Kafka, shared=("bootstrap_servers", "kafka_secret"))
