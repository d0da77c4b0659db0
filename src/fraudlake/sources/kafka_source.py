"""Kafka source: the messages of a topic go into bronze once each, and its lag is what is still to be read."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import contract, fast_alerts, messages
from fraudlake.sources import kafka
from fraudlake.streaming.stream import Appender, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.lake import Compute
    from fraudlake.tables import Table

log = logging.getLogger(__name__)

_TRANSACTIONS, _FAST_ALERTS = "ingest_kafka", "ingest_fast_alerts"


def streams(lake: Lake) -> list[Stream]:
    """Return the streams that ingest the topics of the settings.

    They are that of transactions, into ``bronze_transactions``, and where ``fast_alerts_topic`` is set, that of the
    fast lane's alerts, into ``bronze_fast_alerts``.

    Raises:
        UsageError: a checkpoint belongs to another topic.
        FraudlakeError: the brokers or a topic cannot be reached, or refuse the credentials.
    """
    read = partial(messages.read, contract=contract.of(lake.settings.columns))
    topics = [_stream(lake, _topic(lake), _TRANSACTIONS, tables.BRONZE_TRANSACTIONS, messages.KAFKA_COLUMNS, read)]
    if lake.settings.fast_alerts_topic is not None:
        columns, topic = fast_alerts.KAFKA_COLUMNS, _fast_topic(lake)
        topics.append(_stream(lake, topic, _FAST_ALERTS, tables.BRONZE_FAST_ALERTS, columns, fast_alerts.read))
    return topics


def lag(lake: Lake) -> int:
    """Count the messages of the topic of transactions that bronze does not hold yet.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    return _lag(lake, _topic(lake), tables.BRONZE_TRANSACTIONS)


def fast_alerts_lag(lake: Lake) -> int:
    """Count the messages of the topic of fast alerts that bronze does not hold yet.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    return _lag(lake, _fast_topic(lake), tables.BRONZE_FAST_ALERTS)


def _topic(lake: Lake) -> kafka.Topic:
    return kafka.Topic(lake, lake.checkpoint(_TRANSACTIONS))


def _fast_topic(lake: Lake) -> kafka.Topic:
    return kafka.Topic(lake, lake.checkpoint(_FAST_ALERTS), "fast_alerts_topic")


def _stream(
    lake: Lake, topic: kafka.Topic, step: str, table: Table, columns: Sequence[str], compute: Compute
) -> Stream:
    """Return the stream that appends what ``compute`` makes of some columns of Spark's Kafka source to a table."""
    appender = Appender.of(lake, step)
    # With fail_on_data_loss the stream stops at a gap: there is none to log.
    skips = not lake.settings.fail_on_data_loss
    gaps = kafka.Gaps(topic.name, kafka.last_offsets(lake.read(table), topic.name)) if skips else None

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        for gap in gaps.missing_before(batch) if gaps else ():
            log.warning(gap)
        appender.append(lake, batch.select(*columns), table, batch_id, compute=compute)

    return Stream(
        step,
        topic.read_stream(),
        write,
        writes={table.name: lake.read(table).where(F.col("_topic").isNotNull())},
        persist=skips,
        taken=lambda first: appender.rows_since(lake, table, first),
        explain=topic.explain,
    )


def _lag(lake: Lake, topic: kafka.Topic, table: Table) -> int:
    return topic.lag(kafka.last_offsets(lake.read(table), topic.name))
