"""Coverage: selects the transactions on which a stream has evaluated a version of a rule, as a shadow or live."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.rules.rule_set import EVALUATED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.rules.any_rule import Source
    from fraudlake.rules.rule_set import RuleVersion

_STEPS: Mapping[Source, tuple[str, ...]] = {"transactions": ("detect",), "predictions": ("score", "score_kafka")}
"""The streams that evaluate rules."""


def evaluated_rows(lake: Lake, version: RuleVersion, by_time: bool = False) -> DataFrame:
    """Return the rows of ``silver_transactions`` on which a version was evaluated, in all of its periods in the stream.

    A period begins after the table version that the stream had read when the rule began, and ends with the table
    version that it had read when the rule retired.

    Args:
        lake: the lake.
        version: the version of the rule.
        by_time: use event times instead of table versions, whose files the setting ``retention`` removes: take the
            rows later than the newest one that the stream had read.
    """
    begun = [one for one in map(lake.checkpoint, _STEPS[version.rule.looks_at]) if not one.is_new]
    spans = [_span(lake, one, *batches, by_time) for one in begun for batches in _batches(lake, one, version)]
    nothing = lake.read(tables.SILVER_TRANSACTIONS).where("false")
    rows = reduce(lambda some, others: some.unionByName(others), spans, nothing)
    return rows if len(begun) < 2 else rows.dropDuplicates(["transaction_id"])


def _batches(lake: Lake, checkpoint: Checkpoint, version: RuleVersion) -> Iterator[tuple[int, int | None]]:
    """Yield the micro-batches in which the rule began and before which it ended (None: it has not ended)."""
    begin: int | None = None
    for change, status in [*rule_table.statuses(lake, version), (math.inf, "retired")]:
        if status in EVALUATED:
            begin = int(change) if begin is None else begin
        elif begin is not None:
            batches = checkpoint.notes.batches_of(begin, change, checkpoint.next_batch)
            if batches is not None:
                yield batches
            begin = None


def _span(lake: Lake, checkpoint: Checkpoint, first: int, end: int | None, by_time: bool) -> DataFrame:
    """Return the rows that the stream has evaluated from micro-batch ``first`` on, and before micro-batch ``end``."""
    table = tables.SILVER_TRANSACTIONS
    rows = lake.read(table)
    before = _read_before(lake, checkpoint, first)
    after = _read_before(lake, checkpoint, checkpoint.next_batch if end is None else end)
    time = F.unix_micros("timestamp")
    silver_version = None if by_time else after.get("silver_version")
    if silver_version is not None:
        rows = lake.read_version(table, silver_version)
    elif after.get("newest") is not None:
        rows = rows.where(time <= F.lit(after["newest"]))
    if after.get("watermark") is not None:  # later ones were waiting
        rows = rows.where(time < F.lit(after["watermark"]))
    # In event-time order, the rows that were waiting when the rule began are evaluated under it.
    waiting = F.lit(False) if before.get("watermark") is None else time >= F.lit(before["watermark"])
    silver_version = None if by_time else before.get("silver_version")
    if silver_version is not None:
        earlier = lake.read_version(table, silver_version).where(~waiting).select("transaction_id")
        return rows.join(earlier, on="transaction_id", how="left_anti").select(*rows.columns)
    return rows if before.get("newest") is None else rows.where((time > F.lit(before["newest"])) | waiting)


def _read_before(lake: Lake, checkpoint: Checkpoint, batch: int) -> Mapping[str, int | None]:
    """Return how far the stream had read before a micro-batch, as recorded or derived from its checkpoint."""
    noted = checkpoint.notes.read_before(batch)
    if noted:
        return noted
    return {"silver_version": checkpoint.version_read(batch - 1, lake.store.identity(tables.SILVER_TRANSACTIONS))}
