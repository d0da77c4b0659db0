"""Lag: the commits of a table that the steps which read it have not read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.lake.commit import row_changes

if TYPE_CHECKING:
    from fraudlake import tables
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit


def unread(lake: Lake, table: tables.Table) -> dict[str, list[Commit]]:
    """Return the commits with changed rows that a step has still to read, by step; only of steps that have begun."""
    identity, history = lake.identity(table), lake.history(table)
    lag = {}
    for folder in sorted(lake.checkpoints.glob("*")):
        version = lake.checkpoint(folder.name).unread_versions().get(identity)
        changes = [] if version is None else row_changes(history, version)
        if changes:
            lag[folder.name] = changes
    return lag
