"""Lag: the commits of a table that the steps which read it have not read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake import gold
from fraudlake.lake.commit import new_rows

if TYPE_CHECKING:
    from fraudlake import tables
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit


_COMMANDS = {
    "ingest_kafka": "ingest --source kafka",
    "alert_windows": "aggregate",
    **{aggregate.table.name.removeprefix("gold_"): "aggregate" for aggregate in gold.AGGREGATES},
    "score_kafka": "score --source kafka",
    "prediction_quality": "score",
}


def command_of(step: str) -> str:
    """Return the command that runs a step."""
    to = step.removeprefix("deliver_")
    return f"fraudlake {_COMMANDS.get(step, step) if to == step else f'deliver --to {to}'}"


def unread(lake: Lake, table: tables.Table) -> dict[str, list[Commit]]:
    """Return the commits with new rows that a step has still to read, by step; only of steps that have begun."""
    identity, history = lake.identity(table), lake.history(table)
    lag = {}
    for folder in sorted(lake.checkpoints.glob("*")):
        version = lake.checkpoint(folder.name).unread_versions().get(identity)
        changes = [] if version is None else new_rows(history, version)
        if changes:
            lag[folder.name] = changes
    return lag
