"""Maintenance: the files of changed tables become fewer and clustered, and files that no table uses are removed.

Maintenance may run while the streams run. OPTIMIZE changes no row, so streams skip its commits; if it conflicts with
a write, one of the two is repeated (``conflict.retried``). VACUUM removes a file some time
(``Lake.file_retention``) after it left its table. If a stream is further behind than that, it may still have to read
the file, so the table is not cleaned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import conflict, contents
from fraudlake.lake.commit import row_changes
from fraudlake.operations import lag

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Detail

SAFE_RETENTION = timedelta(days=7)
"""Delta's recommended minimum. A file that is still being written is in no commit, so VACUUM takes it for unused."""

_LARGE = 128 << 20
_RETENTION = "delta.deletedFileRetentionDuration"


@dataclass(frozen=True)
class Vacuumed:
    """Names of the tables that were cleaned, and for each skipped table the steps that are too far behind."""

    tables: list[str]
    skipped: dict[str, list[str]]


def optimize(lake: Lake) -> list[str]:
    """Compact each table that changed since it was last optimized, and cluster it.

    Tables that are read by account get files of about ``target_file_size``, so that queries can skip files by each
    column's minimum and maximum. ``ZORDER`` clusters an account's rows within a partition; a liquid table is clustered
    by the columns that it was made with.

    Returns:
        The names of the tables that were rewritten.
    """
    return [table.name for table in contents.TABLES if conflict.retried(partial(_optimize, lake, table))]


def _optimize(lake: Lake, table: tables.Table) -> bool:
    history = lake.history(table)
    optimizations = [commit for commit in history if commit.operation == "OPTIMIZE" and not commit.is_auto_compaction]
    # Predictive optimization of Databricks compacts, and leaves ZORDER to others.
    complete = [commit for commit in optimizations if commit.is_clustered or not table.zorder]
    last = max(complete, key=lambda commit: commit.version, default=None)
    if not row_changes(history, 0 if last is None else last.version + 1):
        return False
    detail = lake.detail(table)
    is_sorted = bool(table.zorder) and not detail.clustering_columns
    if not is_sorted and detail.is_compact:
        # OPTIMIZE would commit nothing, and would be repeated each time.
        return False
    by = f" ZORDER BY ({', '.join(table.zorder)})" if is_sorted else ""
    # ZORDER rewrites every file that it is given. After the first run it gets only the days that have new files.
    days = ""
    if is_sorted and last is not None and "date" in detail.partition_columns:
        new = lake.read(table).where(f"_metadata.file_modification_time > timestamp_millis({last.millis})")
        days = ", ".join(f"DATE'{row['date']}'" for row in new.select("date").distinct().collect())
    where = f" WHERE date IN ({days})" if days else ""
    lake.set_file_size(table, lake.settings.target_file_bytes if table.zorder else _LARGE)
    with lake.without_compaction(table):
        rewritten = lake.session.sql(f"OPTIMIZE {lake.name_of(table)}{where}{by}")
        metrics = rewritten.select("metrics.numFilesAdded").collect()
    return any(row["numFilesAdded"] for row in metrics)


def require_safe(retention: timedelta, allow_short: bool) -> None:
    """Refuse a retention below :data:`SAFE_RETENTION`.

    Raises:
        UsageError: the retention is too short, and a short retention was not allowed.
    """
    if retention < SAFE_RETENTION and not allow_short:
        raise UsageError(
            f"--retention {retention}: shorter than {SAFE_RETENTION.days} days: a query or write that takes longer "
            "loses files; if there is none, add --allow-short-retention"
        )


def vacuum(lake: Lake) -> Vacuumed:
    """Remove files that left their table longer ago than it keeps them, and old files that are in no commit.

    A table that is younger than that has none.
    """
    cleaned, skipped = [], {}
    for table in contents.TABLES:
        behind = list(lag.expiring(lake, table, lag.unread(lake, table)))
        if behind:
            skipped[table.name] = behind
        else:
            conflict.retried(partial(_vacuum, lake, table, lake.file_retention(table)))
            cleaned.append(table.name)
    return Vacuumed(cleaned, skipped)


def purge(lake: Lake, table: tables.Table) -> None:
    """Remove all files but those of the table's present version, and deleted rows from these. No stream may run."""
    conflict.retried(lambda: lake.session.sql(f"REORG TABLE {lake.name_of(table)} APPLY (PURGE)"))
    conflict.retried(partial(_vacuum, lake, table, timedelta(0)))
    _set_retention(lake, table, lake.detail(table), lake.file_retention(table))


def _vacuum(lake: Lake, table: tables.Table, retention: timedelta) -> None:
    oldest, detail = datetime.now(UTC) - retention, lake.detail(table)
    # Some versions of Delta silently ignore `VACUUM ... RETAIN` (seen in 4.4). All of them respect the property.
    _set_retention(lake, table, detail, retention)
    if detail.created_millis > oldest.timestamp() * 1000:
        # No file is older than its table. VACUUM would look for some anyway, which takes seconds a table.
        return
    lake.session.sql(f"VACUUM {lake.name_of(table)}")


def _set_retention(lake: Lake, table: tables.Table, detail: Detail, retention: timedelta) -> None:
    wanted = f"interval {int(retention.total_seconds())} seconds"
    default = f"interval {int(SAFE_RETENTION.total_seconds())} seconds"
    if detail.properties.get(_RETENTION, default) != wanted:
        lake.session.sql(f"ALTER TABLE {lake.name_of(table)} SET TBLPROPERTIES ('{_RETENTION}' = '{wanted}')")
