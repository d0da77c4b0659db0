"""Lag: the commits of a table that each step has still to read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fraudlake.gold import gold_tables
from fraudlake.lake.commit import new_rows

if TYPE_CHECKING:
    from fraudlake import tables
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit


_COMMANDS = {
    "ingest_kafka": "ingest --source kafka",
    "ingest_fast_alerts": "ingest --source kafka",
    **{aggregate.step: "aggregate" for aggregate in gold_tables.AGGREGATES},
    "score_kafka": "score --source kafka",
    "prediction_quality": "score",
}


def command_of(step: str) -> str:
    """Return the command that runs a step."""
    to = step.removeprefix("deliver_")
    return f"fraudlake {_COMMANDS.get(step, step) if to == step else f'deliver --to {to}'}"


def expiring(lake: Lake, table: tables.Table, unread: dict[str, list[Commit]]) -> dict[str, datetime]:
    """Return the steps with unread commits whose files VACUUM may remove, with the oldest commit's time.

    Args:
        lake: the lake.
        table: the table.
        unread: its unread commits, as :func:`unread` returns them.
    """
    oldest = datetime.now(UTC) - lake.file_retention(table)
    first_unread = {step: min(commit.at for commit in commits) for step, commits in unread.items()}
    return {step: at for step, at in first_unread.items() if at < oldest}


def unread(lake: Lake, table: tables.Table, identity: str | None = None) -> dict[str, list[Commit]]:
    """Return the unread commits with new rows by step, for steps that have begun.

    Args:
        lake: the lake.
        table: the table.
        identity: its id, if it is known: in a workspace, id and history take a query each.
    """
    checkpoints = [lake.checkpoint(folder.name) for folder in sorted(lake.checkpoints.glob("*"))]
    versions = {one.step: one.unread_versions() for one in checkpoints if table.name in one.notes.reads}
    if identity is None:
        identity = lake.store.identity(table) if any(versions.values()) else ""
    readers = {step: tables_read[identity] for step, tables_read in versions.items() if identity in tables_read}
    history = lake.store.history(table) if readers else []
    lag = {step: new_rows(history, version) for step, version in readers.items()}
    return {step: commits for step, commits in lag.items() if commits}
