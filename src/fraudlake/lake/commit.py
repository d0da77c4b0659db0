"""Commits: what a table's log says of each, and of the table as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_MAINTENANCE = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES"}


@dataclass(frozen=True)
class Detail:
    """What a table's log says of it as a whole: its identity, layout and properties."""

    id: str
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Commit:
    """One version of a table; ``millis`` is when it was made, in milliseconds since 1970 UTC.

    ``on_the_way`` tells of an OPTIMIZE that it was a writer's own compaction, which clusters nothing. ``metadata`` is
    the text that its writer gave it.
    """

    version: int
    operation: str
    millis: int
    on_the_way: bool
    metadata: str | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Commit:
        """Take an entry of Delta's history, ``timestamp`` in milliseconds.

        Spark marks its own compaction as ``auto``; all of delta-rs's is of that kind here.
        """
        is_auto = str((entry["operationParameters"] or {}).get("auto")).lower() == "true"
        by_delta_rs = (entry.get("engineInfo") or "").startswith("delta-rs")
        return cls(
            entry["version"],
            entry["operation"],
            entry["timestamp"],
            is_auto or by_delta_rs,
            entry.get("userMetadata"),
        )

    @property
    def changes_rows(self) -> bool:
        """Whether rows may be others than before."""
        return self.operation not in _MAINTENANCE

    @property
    def at(self) -> datetime:
        """When it was made (UTC)."""
        return datetime.fromtimestamp(self.millis / 1000, UTC)


def row_changes(history: list[Commit], version: int) -> list[Commit]:
    """Return the commits from a version on that changed rows."""
    return [
        commit
        for commit in history
        if commit.version >= version and commit.changes_rows and commit.operation != "CREATE TABLE"
    ]
