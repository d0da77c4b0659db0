"""Kafka source: a topic's messages go into bronze once each, and its lag is what is still to be read."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.bronze import contract, messages
from fraudlake.sources import kafka
from fraudlake.streaming.stream import Appender, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

log = logging.getLogger(__name__)

_STEP = "ingest_kafka"


def stream(lake: Lake) -> Stream:
    """Return the stream that ingests the topic of the settings into ``bronze_transactions``.

    Raises:
        UsageError: the checkpoint belongs to another topic.
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    settings = lake.settings
    appender = Appender.of(lake, _STEP)
    read = partial(messages.read, contract=contract.of(settings.columns))
    topic = kafka.Topic(lake, lake.checkpoint(_STEP))
    # With fail_on_data_loss the stream stops at a gap: there is none to log.
    gaps = None if settings.fail_on_data_loss else kafka.Gaps(settings.topic, _last_offsets(lake))

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        for gap in gaps.missing_before(batch) if gaps else ():
            log.warning(gap)
        rows = batch.select(*messages.KAFKA_COLUMNS)
        appender.append(lake, rows, tables.BRONZE_TRANSACTIONS, batch_id, compute=read)

    return Stream(
        _STEP,
        topic.read_stream(),
        write,
        writes={tables.BRONZE_TRANSACTIONS.name: lake.read(tables.BRONZE_TRANSACTIONS).where("_topic IS NOT NULL")},
        persist=not settings.fail_on_data_loss,
        explain=topic.explain,
    )


def lag(lake: Lake) -> int:
    """Count the messages of the topic that bronze does not hold yet.

    Raises:
        FraudlakeError: the brokers or the topic cannot be reached, or refuse the credentials.
    """
    return kafka.Topic(lake, lake.checkpoint(_STEP)).lag(_last_offsets(lake))


def _last_offsets(lake: Lake) -> dict[int, int]:
    return kafka.last_offsets(lake.read(tables.BRONZE_TRANSACTIONS), lake.settings.topic)
