"""Ingest: appends landed files, or the messages of a Kafka topic, to bronze, each once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings
    from fraudlake.streams.ingest.source import Source
    from fraudlake.streams.stream import Stream


def streams(lake: Lake, retry_rejected: bool = False) -> list[Stream]:
    """Landed files, or a Kafka topic → ``bronze_transactions``. Files and topics have a checkpoint each.

    Files also have their outcomes in ``bronze_files`` and ``bronze_rejected_files``. With Kafka and the setting
    ``fast_alerts_topic``, a second stream appends the fast lane's alerts to ``bronze_fast_alerts``.

    Args:
        lake: the lake.
        retry_rejected: first retry rejected files.

    Raises:
        UsageError: a checkpoint belongs to another topic.
        FraudlakeError: nothing has landed, now or ever; or the brokers or a topic cannot be reached, or refuse the
            credentials.
    """
    return source_of(lake.settings).streams(lake, retry_rejected)


def source_of(settings: Settings) -> Source:
    """Return the source of transactions: the module of this folder that the setting ``source`` names."""
    source: Source = import_module(f"{__name__}.{settings.source}").SOURCE
    return source
