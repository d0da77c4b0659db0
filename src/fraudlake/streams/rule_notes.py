"""Rule notes: a stream's checkpoint records which rules a micro-batch evaluates, and how far it had read before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.lake.missing_version import compute_at
from fraudlake.silver import transactions as silver

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.checkpoint import Checkpoint
    from fraudlake.rules.any_rule import Source
    from fraudlake.rules.rule_set import RuleSet


def read_silver(lake: Lake, checkpoint: Checkpoint, batch: int) -> dict[str, int | None]:
    """Return how far a stream had read silver before a micro-batch: ``silver_version``, ``newest`` and ``watermark``.

    They are the table's version, and the newest event time in it, in microseconds. The watermark is null.
    """
    version = checkpoint.version_read(batch - 1, lake.store.identity(tables.SILVER_TRANSACTIONS))
    newest = None if version is None else compute_at(lake, tables.SILVER_TRANSACTIONS, version, silver.newest)
    return {"silver_version": version, "newest": newest, "watermark": None}


def noted(lake: Lake, checkpoint: Checkpoint, batch: int, source: Source) -> RuleSet:
    """Return the rules noted for a micro-batch that evaluate transactions, or predictions."""
    return rule_table.read(lake, change_noted(checkpoint, batch)).select_source(source)


def change_noted(checkpoint: Checkpoint, batch: int) -> int:
    """Return the change of rules noted for a micro-batch; without a note, the first one."""
    return checkpoint.notes.rules_of(batch) or 1
