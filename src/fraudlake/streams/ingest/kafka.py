"""Kafka: appends the messages of a topic to bronze, and those of the fast lane's topic if it is set."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.bronze import contract, fast_alerts, messages
from fraudlake.lake.appender import Appender
from fraudlake.sources import kafka, kafka_source
from fraudlake.streams.ingest.source import Source
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.writer import Compute
    from fraudlake.tables import Table

log = logging.getLogger(__name__)


def _streams(lake: Lake, retry_rejected: bool) -> list[Stream]:
    read = partial(messages.read, contract=contract.from_settings(lake.settings))
    transactions = kafka_source.transactions(lake), tables.BRONZE_TRANSACTIONS, messages.KAFKA_COLUMNS
    topics = [_topic_stream(lake, kafka_source.TRANSACTIONS, *transactions, read)]
    if lake.settings.fast_alerts_topic is not None:
        alerts = kafka_source.fast_alerts(lake), tables.BRONZE_FAST_ALERTS, fast_alerts.KAFKA_COLUMNS
        topics.append(_topic_stream(lake, kafka_source.FAST_ALERTS, *alerts, fast_alerts.read))
    return topics


def _topic_stream(
    lake: Lake, step: str, topic: kafka.Topic, table: Table, columns: Sequence[str], compute: Compute
) -> Stream:
    """Return the stream that appends to a table the rows that ``compute`` parses from Spark's Kafka source."""
    appender = Appender.of(lake, step)
    # With fail_on_data_loss the stream stops at a gap, so there are no gaps to log.
    skips = not lake.settings.fail_on_data_loss
    gaps = kafka.Gaps(topic.name, kafka.last_offsets(lake.read(table), topic.name)) if skips else None

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        for gap in gaps.missing_before(batch) if gaps else ():
            log.warning(gap)
        appender.append(lake, batch.select(*columns), table, batch_id, compute=compute)

    topic_rows = topic.read_stream()
    return Stream(
        step,
        lambda: topic_rows,
        write,
        writes={table: "_topic IS NOT NULL"},
        persist=skips,
        count_rows=lambda first: appender.rows_since(lake, table, first),
        explain=topic.explain,
    )


SOURCE = Source(_streams, unread=kafka_source.lag)
