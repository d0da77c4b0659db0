"""Unfinished: replays and removals of accounts that were interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.operations.rebuild_note import RebuildNote
from fraudlake.quarantine import replay

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Unfinished:
    """What a repeated command finishes."""

    cut_replays: int = 0
    """Number of interrupted replays of quarantined rows."""
    cut_replay_of_days: str | None = None
    """The command that finishes an interrupted replay of days."""
    unfinished_removals: int = 0
    """Number of accounts whose removal was interrupted, or left a trace."""


def read(lake: Lake) -> Unfinished:
    """Read the figures."""
    note = RebuildNote.of(lake)
    return Unfinished(
        cut_replays=len(replay.unfinished(lake)),
        cut_replay_of_days=note.command if note else None,
        unfinished_removals=_unfinished_removals(lake),
    )


def _unfinished_removals(lake: Lake) -> int:
    """Count the accounts whose removal has begun and not finished."""
    count = "count(DISTINCT account_hash) AS accounts"
    return int(
        lake.store.query(
            f"SELECT {count} FROM {tables.GOLD_FORGOTTEN.name} WHERE finished_at IS NULL", tables.GOLD_FORGOTTEN
        )["accounts"][0].as_py()
    )
