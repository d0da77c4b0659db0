"""Maintenance: compacts and clusters the files of changed tables, and removes files that no table uses.

Maintenance may run while the streams run. OPTIMIZE changes no row, so streams skip its commits; if it conflicts with
a write, one of the two is repeated (``conflict.retried``). VACUUM removes a file some time
(``Lake.file_retention``) after it left its table. If a stream lags further than that, it may still have to read the
file, so the table is not cleaned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import conflict, contents, machine_clock
from fraudlake.lake.commit import row_changes
from fraudlake.lake.data_file import by_partition
from fraudlake.operations import lag
from fraudlake.operations.clustering import Clustered, Clustering, compactable, portions

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit, Detail
    from fraudlake.lake.data_file import DataFile

SAFE_RETENTION = timedelta(days=7)
"""Delta's recommended minimum: VACUUM takes a file that is still being written for unused, as no commit has it."""

_LARGE = 128 << 20
_TABLES_AT_ONCE = 4
_PORTION = 32 << 20
"""Bytes that are rewritten in one commit, if commits are cheap."""
_RETENTION = "delta.deletedFileRetentionDuration"


@dataclass(frozen=True)
class Vacuumed:
    """Names of the tables that were cleaned, and for each skipped table the steps that lag too far.

    ``in_doubt`` are the tables that were not cleaned, since the clock may be ahead.
    """

    tables: list[str]
    skipped: dict[str, list[str]]
    in_doubt: list[str]


def optimize(
    lake: Lake,
    report: Callable[[int, int], None] = lambda done, total: None,
    histories: Mapping[str, list[Commit]] = MappingProxyType({}),
) -> list[str]:
    """Compact each table's new small files, and cluster the days that are due, several tables at once.

    Tables that are read by account get files of about ``target_file_size``, so that queries can skip files by each
    column's minimum and maximum. An account's rows are clustered within a partition (:class:`Clustering`); a liquid
    table is clustered by the columns that it was made with. A table with nothing to do is not touched.

    Args:
        lake: the lake.
        report: called with the number of tables that are done, and the number of all tables.
        histories: known histories by table name; a table without changes in its known history is skipped this time.

    Returns:
        The names of the tables that were rewritten.

    Raises:
        FraudlakeError: some tables were not optimized. The others were.
    """
    writers = {table: lake.writer(table) for table in contents.TABLES}
    if any(writer.rewrites_partitions for writer in writers.values()):
        _ = lake.session  # Spark starts in the main thread, which a signal interrupts
    stopping = threading.Event()
    pool = ThreadPoolExecutor(_TABLES_AT_ONCE)
    running = {pool.submit(_optimize, lake, table, histories.get(table.name), stopping): table for table in writers}
    try:
        for done, _ in enumerate(as_completed(running), 1):
            report(done, len(running))
    finally:
        stopping.set()
        # Do not wait for Spark's queries: they end with Java.
        pool.shutdown(wait=False, cancel_futures=True)
    failed = {table.name: error for future, table in running.items() if (error := future.exception()) is not None}
    if failed:
        reasons = "; ".join(f"{name} ({first_line(str(error) or repr(error))})" for name, error in failed.items())
        raise FraudlakeError(f"not optimized, the other tables are: {reasons}") from next(iter(failed.values()))
    return [table.name for future, table in running.items() if future.result()]


def _optimize(lake: Lake, table: tables.Table, commits: list[Commit] | None, stopping: threading.Event) -> bool:
    """Rewrite the files of a table that are due, in portions; return whether there were any."""
    is_whole = lake.writer(table).rewrites_partitions
    rewritten = False
    # In a workspace a history is a query.
    if is_whole and commits is not None and not _has_changed(commits, table):
        return False

    def rewrite() -> None:
        nonlocal rewritten
        size = lake.settings.target_file_bytes if table.zorder else _LARGE
        for files, by in _due(lake, table, size):
            if stopping.is_set():
                return
            lake.writer(table).rewrite(files, by, size)
            rewritten = True

    while not stopping.is_set():
        # Wait for another process that optimizes the table; it will leave nothing to do.
        with suppress(TimeoutError):
            alone = lake.without_compaction(table, wait=1)
            break
    else:
        return False
    with alone:
        conflict.retried(rewrite)
    return rewritten


def _due(lake: Lake, table: tables.Table, size: int) -> list[tuple[list[DataFile], tuple[str, ...]]]:
    """Return portions of files that are due to be rewritten, with the columns to cluster them by."""
    is_whole = lake.writer(table).rewrites_partitions
    history = lake.store.history(table)
    if is_whole and not _has_changed(history, table):
        return []
    detail = lake.store.detail(table)
    if detail.is_compact and (detail.clustering_columns or not table.zorder):
        return []
    if detail.clustering_columns:
        return [([], ())]  # Delta itself finds the new files
    files = lake.store.files(table)
    clustered = Clustered.of(history)
    clustering = Clustering.of(lake.settings, size)
    due = clustering.due(files, clustered, datetime.now(UTC)) if table.zorder else []
    left = {file.day for file in files} - {group[0].day for group in due}
    if is_whole:  # and would rewrite clustered files, too
        left -= {file.day for file in files if file.millis <= clustered.millis(file)}
    compacted = compactable([file for file in files if file.day in left], clustered, size)
    size_of_commit = inf if is_whole else _PORTION
    return [
        *((portion, ()) for portion in portions(by_partition(compacted), size_of_commit)),
        *((portion, table.zorder) for portion in portions(due, size_of_commit)),
    ]


def _has_changed(history: list[Commit], table: tables.Table) -> bool:
    """Return whether rows of a table have changed since it was last optimized in one commit."""
    optimizations = [commit for commit in history if commit.operation == "OPTIMIZE" and not commit.is_auto_compaction]
    # Databricks' predictive optimization compacts without ZORDER.
    complete = [commit.version for commit in optimizations if commit.is_clustered or not table.zorder]
    return bool(row_changes(history, max(complete, default=-1) + 1))


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
    """Remove files that left their table longer ago than its retention, and old files that are in no commit.

    A table younger than its retention has no such files. If the clock may be ahead, no file is removed.
    """
    vacuumed = Vacuumed([], {}, [])
    is_in_doubt = machine_clock.is_in_doubt(lake)
    for table in contents.TABLES:
        retention = lake.file_retention(table)
        detail = lake.store.detail(table)
        # In a younger table nothing has expired; checking would cost one or two queries in a workspace.
        unread = {} if _is_younger(detail, retention) else lag.unread(lake, table, detail.id)
        steps = list(lag.expiring(lake, table, unread))
        if steps:
            vacuumed.skipped[table.name] = steps
        elif is_in_doubt and _has_unused_files(lake, table, detail, retention):
            vacuumed.in_doubt.append(table.name)
        else:
            conflict.retried(partial(_vacuum, lake, table, detail, retention))
            if not is_in_doubt:
                conflict.retried(partial(lake.store.remove_old_log, table))
            vacuumed.tables.append(table.name)
    return vacuumed


def purge(lake: Lake, table: tables.Table) -> None:
    """Remove all files except the present version's, and deleted rows from these. No stream may run."""
    conflict.retried(lambda: lake.session.sql(f"REORG TABLE {lake.name_of(table)} APPLY (PURGE)"))
    conflict.retried(lambda: _vacuum(lake, table, lake.store.detail(table), timedelta(0)))
    _set_retention(lake, table, lake.store.detail(table), lake.file_retention(table))


def _vacuum(lake: Lake, table: tables.Table, detail: Detail, retention: timedelta) -> None:
    # Some versions of Delta silently ignore `VACUUM ... RETAIN` (seen in 4.4). All of them respect the property.
    _set_retention(lake, table, detail, retention)
    # VACUUM lists a table's files in any case, which takes seconds per table.
    if _has_unused_files(lake, table, detail, retention):
        lake.session.sql(f"VACUUM {lake.name_of(table)}")


def _has_unused_files(lake: Lake, table: tables.Table, detail: Detail, retention: timedelta) -> bool:
    return not _is_younger(detail, retention) and lake.store.may_have_unused_files(table, retention)


def _is_younger(detail: Detail, retention: timedelta) -> bool:
    """Return whether a table, and so each of its files and commits, is younger than the retention."""
    return detail.created_millis > (datetime.now(UTC) - retention).timestamp() * 1000


def _set_retention(lake: Lake, table: tables.Table, detail: Detail, retention: timedelta) -> None:
    wanted = f"interval {int(retention.total_seconds())} seconds"
    default = f"interval {int(SAFE_RETENTION.total_seconds())} seconds"
    if detail.properties.get(_RETENTION, default) != wanted:
        lake.session.sql(f"ALTER TABLE {lake.name_of(table)} SET TBLPROPERTIES ('{_RETENTION}' = '{wanted}')")
