"""Kafka source: the topics that the settings name, and how many of their messages are unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.sources import kafka

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.tables import Table

TRANSACTIONS = "ingest_kafka"
FAST_ALERTS = "ingest_fast_alerts"
"""The steps that ingest the two topics."""


def transactions(lake: Lake) -> kafka.Topic:
    """Return the topic of transactions, as its step reads it."""
    return kafka.Topic(lake, lake.checkpoint(TRANSACTIONS))


def fast_alerts(lake: Lake) -> kafka.Topic:
    """Return the topic of the fast lane's alerts, as its step reads it."""
    return kafka.Topic(lake, lake.checkpoint(FAST_ALERTS), "fast_alerts_topic")


def lag(lake: Lake) -> int:
    """Count the messages of the topic of transactions that bronze lacks.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    return _lag(lake, transactions(lake), tables.BRONZE_TRANSACTIONS)


def fast_alerts_lag(lake: Lake) -> int:
    """Count the messages of the topic of fast alerts that bronze lacks.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    return _lag(lake, fast_alerts(lake), tables.BRONZE_FAST_ALERTS)


def _lag(lake: Lake, topic: kafka.Topic, table: Table) -> int:
    return topic.lag(kafka.last_offsets(lake.read(table), topic.name))
