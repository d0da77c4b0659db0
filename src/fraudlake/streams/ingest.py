"""Ingest: landed files, or the messages of a Kafka topic, become rows of bronze, each once."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import contract, fast_alerts, messages
from fraudlake.errors import FraudlakeError
from fraudlake.lake.appender import Appender
from fraudlake.sources import kafka, kafka_source, landing
from fraudlake.sources.file_source import FileSource
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.lake import Compute
    from fraudlake.tables import Table

log = logging.getLogger(__name__)


def streams(lake: Lake, retry_rejected: bool = False) -> list[Stream]:
    """Landed files, or a Kafka topic → ``bronze_transactions``. Files and topics have a checkpoint each.

    Files also have their outcomes in ``bronze_files`` and ``bronze_rejected_files``. With Kafka and the setting
    ``fast_alerts_topic``, a second stream appends the fast lane's alerts to ``bronze_fast_alerts``.

    Args:
        lake: the lake.
        retry_rejected: first read rejected files again that can be read now.

    Raises:
        UsageError: a checkpoint belongs to another topic.
        FraudlakeError: nothing has landed, now or ever; or the brokers or a topic cannot be reached, or refuse the
            credentials.
    """
    if lake.settings.source == "files":
        return [_of_files(lake, retry_rejected)]
    read = partial(messages.read, contract=contract.of(lake.settings.columns))
    transactions = kafka_source.transactions(lake), tables.BRONZE_TRANSACTIONS, messages.KAFKA_COLUMNS
    topics = [_of_topic(lake, kafka_source.TRANSACTIONS, *transactions, read)]
    if lake.settings.fast_alerts_topic is not None:
        alerts = kafka_source.fast_alerts(lake), tables.BRONZE_FAST_ALERTS, fast_alerts.KAFKA_COLUMNS
        topics.append(_of_topic(lake, kafka_source.FAST_ALERTS, *alerts, fast_alerts.read))
    return topics


def _of_files(lake: Lake, retry_rejected: bool) -> Stream:
    folder = landing_folder(lake)
    folder.require()
    if not any(True for _ in landing.files(folder.path)) and not lake.rows(tables.BRONZE_FILES):
        raise FraudlakeError(f"nothing has landed in {folder.path}: no finished file is there yet")
    source = FileSource(retry_rejected)
    return Stream(
        "ingest",
        folder.read_stream(),
        source.ingest_batch,
        persist=False,
        before=lambda: source.prepare(lake),
        after=lambda: source.finish(lake),
        taken=lambda first: source.taken,
    )


def _of_topic(
    lake: Lake, step: str, topic: kafka.Topic, table: Table, columns: Sequence[str], compute: Compute
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
