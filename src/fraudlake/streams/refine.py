"""Refine: writes the valid rows of bronze to silver, and the others to quarantine with their reasons."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.lake.appender import Appender
from fraudlake.lake.rows import persisted, persisted_batch
from fraudlake.quarantine import replay
from fraudlake.rates.base_amount import with_base_amount
from fraudlake.silver import duplicates
from fraudlake.silver import transactions as silver
from fraudlake.streams.batch_inputs import BatchInputs
from fraudlake.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake


def streams(lake: Lake) -> list[Stream]:
    """``bronze_transactions`` → ``silver_transactions`` and ``silver_quarantine``.

    A micro-batch makes two commits. After a crash between them, Spark repeats it: see
    :class:`~fraudlake.streams.batch_inputs.BatchInputs`.
    """
    checkpoint = lake.checkpoint("refine")
    appender = Appender.of(lake, "refine")
    position_index = duplicates.PositionIndex()
    recorded: dict[int, BatchInputs] = {}

    def recover() -> None:
        replay.finish(lake)
        batch_id = checkpoint.pending_batch()
        inputs = None if batch_id is None else BatchInputs.recorded(lake, appender.application, batch_id)
        if batch_id is not None and inputs is not None:
            recorded[batch_id] = inputs

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        inputs = recorded.get(batch_id) or BatchInputs.now(lake)
        checked = silver.checked(batch, inputs.settings)
        with persisted_batch(checked) as require_again:
            summary = duplicates.batch_summary(checked)
            require_again(summary.rows)
            stored = inputs.stored(lake)
            overlapping_sources = position_index.overlapping_sources(summary, stored)
            may_hold_duplicates = summary.may_hold_duplicates(overlapping_sources)
            rows = duplicates.with_duplicate_reasons(checked, summary, overlapping_sources, stored)
            # Finding duplicates takes joins, and both tables need the result: compute it once.
            with persisted(rows) if may_hold_duplicates else nullcontext():
                written = []
                if summary.valid:
                    valid = with_base_amount(silver.valid(rows, lake.settings.columns), lake, summary.dates)
                    appender.append(lake, valid, tables.SILVER_TRANSACTIONS, batch_id, record=inputs.as_record())
                    written.append(tables.SILVER_TRANSACTIONS)
                if summary.rejected or may_hold_duplicates:
                    appender.append(lake, silver.quarantined(rows), tables.SILVER_QUARANTINE, batch_id)
                    written.append(tables.SILVER_QUARANTINE)
            appender.require_rows(lake, written, batch_id, summary.rows)
            position_index.add(summary)

    return [
        Stream(
            "refine",
            partial(lake.read_stream, tables.BRONZE_TRANSACTIONS),
            write,
            reads=(tables.BRONZE_TRANSACTIONS,),
            writes={tables.SILVER_TRANSACTIONS: "true"},
            persist=False,
            before=recover,
        )
    ]
