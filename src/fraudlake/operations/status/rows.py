"""Rows: how many the layers hold, and what removed some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.operations import retention
from fraudlake.quarantine.show import count_by_name
from fraudlake.rates import rate_table
from fraudlake.silver import quality_rules

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit
    from fraudlake.operations.retention import Removed
    from fraudlake.tables import Table


@dataclass(frozen=True)
class Rows:
    """Counts of rows."""

    bronze: int = 0
    silver: int = 0
    quarantine: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Rows in quarantine, by broken rule."""
    warnings: dict[str, int] = field(default_factory=dict)
    """Rows of silver, by rule that warns."""
    without_rate: int = 0
    """Rows of ``silver`` whose currency has no rate, in a lake of several currencies."""
    without_currency: int = 0
    """Rows of ``silver`` that name no currency, which no rate helps, in a lake of several currencies."""
    late: int = 0
    """Rows of ``quarantine`` that are in ``silver``, too: they came too late for the detector."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Rows that ``row_retention`` removed, by table."""
    removed_late: int = 0
    """Late rows among those removed from ``quarantine``."""
    by_hand: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The latest ``version`` in which somebody removed rows of a table by SQL or a restore, its ``operation`` and its
    time, ``at`` (UTC), by table."""

    @property
    def ingested(self) -> int:
        """Rows that bronze has got, the removed ones, too."""
        return self.bronze + self._removed(tables.BRONZE_TRANSACTIONS)

    @property
    def refined(self) -> int:
        """Rows of bronze that silver or quarantine has got, the removed ones, too."""
        silver = self.silver + self._removed(tables.SILVER_TRANSACTIONS)
        quarantine = self.quarantine + self._removed(tables.SILVER_QUARANTINE)
        return silver + quarantine - self.late - self.removed_late

    def _removed(self, table: Table) -> int:
        return self.removed.get(table.name, 0)


def read(lake: Lake, removed: Removed) -> Rows:
    """Read the figures."""
    reasons = count_by_name(lake, tables.SILVER_QUARANTINE, "reasons")
    return Rows(
        bronze=lake.store.count(tables.BRONZE_TRANSACTIONS),
        silver=lake.store.count(tables.SILVER_TRANSACTIONS),
        quarantine=lake.store.count(tables.SILVER_QUARANTINE),
        reasons=reasons,
        warnings=count_by_name(lake, tables.SILVER_TRANSACTIONS, "warnings"),
        **rate_table.count_missing(lake.store)._asdict(),
        late=reasons.get(quality_rules.LATE, 0),
        removed=removed.rows,
        removed_late=removed.from_kafka_or_late.get(tables.SILVER_QUARANTINE.name, 0),
        by_hand=_by_hand(lake),
    )


def _by_hand(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return the latest commit of bronze, silver and quarantine that removed rows without a step's record, if any."""
    landed = (tables.BRONZE_TRANSACTIONS, tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE)
    commits = {table.name: _latest_by_hand(lake.store.history(table)) for table in landed}
    return {
        name: {"version": commit.version, "operation": _operation(commit), "at": commit.at}
        for name, commit in commits.items()
        if commit is not None
    }


def _operation(commit: Commit) -> str:
    restored = commit.record.get(retention.RESTORED)
    return commit.operation if restored is None else f"restore of version {restored}"


def _latest_by_hand(history: list[Commit]) -> Commit | None:
    """Return the latest commit that removed rows, by SQL or as a restore, and that no later restore has undone."""
    last = history[0].version if history else 0
    for commit in history:
        if commit.version > last:
            continue
        if retention.RESTORED in commit.record:
            last = commit.record[retention.RESTORED]
            if any(last < other.version < commit.version and _wrote_rows(other) for other in history):
                return commit
        elif commit.is_manual_removal:
            return commit
    return None


def _wrote_rows(commit: Commit) -> bool:
    by_retention_or_restore = {retention.RETENTION, retention.RESTORED} & commit.record.keys()
    return commit.changes_rows and not commit.is_manual_removal and not by_retention_or_restore
