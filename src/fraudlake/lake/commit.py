"""Commits: the versions of a table, as Delta's history lists them, and the detail of its log as a whole."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_MAINTENANCE = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMNS"}
_WITHOUT_NEW_ROWS = {"DELETE", "UPDATE"}
_REMOVED = {"DELETE", "TRUNCATE", "RESTORE"}
_INSERTED = ("numTargetRowsInserted", "num_target_rows_inserted")
"""Spark's and delta-rs's names for the number of rows that a MERGE inserted."""
_WRITTEN = ("numOutputRows", "num_added_rows")
"""Their names for the number of rows that an append or an overwrite wrote."""
PASSED_OVER = "passed_over_by_streams"
"""Mark of a commit that gives streams nothing to read, although its operation could."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d|NULL")


@dataclass(frozen=True)
class Detail:
    """The identity, layout and properties of a table, from its log.

    ``is_compact`` is true if certainly no partition has two files. ``created_millis`` is when the table was made, in
    milliseconds since 1970 UTC.
    """

    id: str
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    properties: Mapping[str, str]
    is_compact: bool
    created_millis: int


@dataclass(frozen=True)
class Commit:
    """One version of a table; ``millis`` is when it was made, in milliseconds since 1970 UTC.

    ``is_auto_compaction`` marks an OPTIMIZE that Delta ran after a writer's commit, and which does not cluster.
    ``metadata`` is the text that the writer attached (``userMetadata``).
    """

    version: int
    operation: str
    millis: int
    is_auto_compaction: bool
    metadata: str | None = None
    inserts: bool = True
    """Whether a MERGE may have inserted rows."""
    rows: int | None = None
    """Number of rows that it wrote or, as a MERGE, inserted; None if it is not recorded."""
    is_clustered: bool = False
    """Whether it is an OPTIMIZE with ZORDER, or one of a liquid table."""
    days: frozenset[str] = frozenset()
    """The days that an OPTIMIZE was limited to, NULL for rows without a day; empty if it was not limited."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Commit:
        """Convert an entry of Delta's history; its ``timestamp`` is in milliseconds."""
        parameters = entry["operationParameters"] or {}
        metadata = entry.get("userMetadata")
        metrics = entry.get("operationMetrics") or {}
        return cls(
            entry["version"],
            entry["operation"],
            entry["timestamp"],
            str(parameters.get("auto")).lower() == "true",
            metadata,
            all(str(metrics.get(name)) != "0" for name in _INSERTED),
            _number(metrics, _INSERTED if entry["operation"] == "MERGE" else _WRITTEN),
            any((parameters.get(name) or "[]") != "[]" for name in ("zOrderBy", "clusterBy")),
            frozenset(_DAY.findall(str(parameters.get("predicate")))),
        )

    @property
    def record(self) -> dict[str, Any]:
        """``metadata`` as a JSON object; empty if another writer wrote it."""
        return _record(self.metadata)

    def is_of(self, application: str, batch: int) -> bool:
        """Whether the commit is that of a stream's micro-batch."""
        return (self.record.get("application"), self.record.get("batch")) == (application, batch)

    @property
    def changes_rows(self) -> bool:
        """Whether the commit may change rows; maintenance does not."""
        return self.operation not in _MAINTENANCE

    @property
    def is_manual_removal(self) -> bool:
        """Whether ad-hoc SQL may have removed rows in the commit: steps leave a record, or insert."""
        return self.operation in _REMOVED and not self.record

    @property
    def has_new_rows(self) -> bool:
        """Whether the commit may give a stream rows to read."""
        only_removes = self.operation in _WITHOUT_NEW_ROWS or (self.operation == "MERGE" and not self.inserts)
        return self.changes_rows and not only_removes and not self.record.get(PASSED_OVER)

    @property
    def at(self) -> datetime:
        """Time of the commit (UTC)."""
        return datetime.fromtimestamp(self.millis / 1000, UTC)


def _number(metrics: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(metrics[name]) for name in names if name in metrics), None)


def _record(metadata: str | None) -> dict[str, Any]:
    try:
        record = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def row_changes(history: list[Commit], version: int) -> list[Commit]:
    """Return the commits from a version on that changed rows."""
    return [
        commit
        for commit in history
        if commit.version >= version and commit.changes_rows and commit.operation != "CREATE TABLE"
    ]


def new_rows(history: list[Commit], version: int) -> list[Commit]:
    """Return the commits from a version on that may give a stream rows to read."""
    return [commit for commit in row_changes(history, version) if commit.has_new_rows]
