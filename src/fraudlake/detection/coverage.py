"""Coverage: a version of a rule becomes the transactions that a stream has evaluated it on, in the shadow and live."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.rules.rule_set import EVALUATED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.rules.rule_set import RuleVersion


def seen(lake: Lake, version: RuleVersion, by_time: bool = False) -> DataFrame:
    """Return the rows of ``silver_transactions`` that a version was evaluated on, in all of its times in the stream.

    They are the rows that came after the version of the table that the stream had read when the rule began, up to the
    one that it had read when the rule retired.

    Args:
        lake: the lake.
        version: the version of the rule.
        by_time: take event times instead of these versions, whose files leave by the setting ``retention``: the rows
            later than the newest one that the stream had read.
    """
    spans = [_span(lake, *batches, by_time) for batches in _batches(lake, version)]
    nothing = lake.read(tables.SILVER_TRANSACTIONS).where("false")
    return reduce(lambda some, others: some.unionByName(others), spans, nothing)


def _batches(lake: Lake, version: RuleVersion) -> Iterator[tuple[int, int | None]]:
    """Return the micro-batches of ``detect`` in which the rule began, and those before which it ended, if it did."""
    checkpoint = lake.checkpoint("detect")
    if checkpoint.is_new:
        return
    begin: int | None = None
    for change, status in [*rule_table.statuses(lake, version), (math.inf, "retired")]:
        if status in EVALUATED:
            begin = int(change) if begin is None else begin
        elif begin is not None:
            batches = checkpoint.batches_of(begin, change)
            if batches is not None:
                yield batches
            begin = None


def _span(lake: Lake, first: int, end: int | None, by_time: bool) -> DataFrame:
    """Return the rows that the stream has evaluated from one micro-batch on, and before another one."""
    table, checkpoint = tables.SILVER_TRANSACTIONS, lake.checkpoint("detect")
    rows, before = lake.read(table), _read_before(lake, first)
    after = _read_before(lake, checkpoint.next_batch if end is None else end)
    time = F.unix_micros("timestamp")
    known = None if by_time else after.get("silver_version")
    if known is not None:
        rows = lake.read_version(table, known)
    elif after.get("newest") is not None:
        rows = rows.where(time <= F.lit(after["newest"]))
    if after.get("watermark") is not None:  # later ones were waiting
        rows = rows.where(time < F.lit(after["watermark"]))
    # In event-time order, the rows that were waiting when the rule began are evaluated under it.
    waiting = F.lit(False) if before.get("watermark") is None else time >= F.lit(before["watermark"])
    known = None if by_time else before.get("silver_version")
    if known is not None:
        earlier = lake.read_version(table, known).where(~waiting).select("transaction_id")
        return rows.join(earlier, on="transaction_id", how="left_anti").select(*rows.columns)
    return rows if before.get("newest") is None else rows.where((time > F.lit(before["newest"])) | waiting)


def _read_before(lake: Lake, batch: int) -> Mapping[str, int | None]:
    """Return how far the stream had read before a micro-batch, if that was noted, or is known."""
    checkpoint = lake.checkpoint("detect")
    noted = checkpoint.read_before(batch)
    if noted:
        return noted
    return {"silver_version": checkpoint.version_read(batch - 1, lake.identity(tables.SILVER_TRANSACTIONS))}
