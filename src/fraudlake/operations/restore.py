"""Restore: brings back the rows of an earlier version of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import contents
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.store import Snapshot
from fraudlake.operations.retention import RESTORED
from fraudlake.operations.standstill import begun_steps, standstill

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.tables import Table


@dataclass(frozen=True)
class Restored:
    """Result of a restore: ``version`` is the restored one, now the table's version ``version_after``."""

    table: str
    version: int
    version_before: int
    version_after: int
    rows_before: int
    rows_after: int


def restore(
    lake: Lake, name: str, version: int | None, timestamp: datetime | None = None, allow_streams: bool = False
) -> Restored:
    """Restore a table to an earlier version in one commit; the current version stays readable.

    Streams that read the table continue after the commit: they do not read the rows that come back, and keep the
    results of the rows that leave. A stream that writes the table does not repeat any rows.

    Args:
        lake: the lake.
        name: the table's name.
        version: the version; None takes ``timestamp``.
        timestamp: a time (UTC), for the version that the table had then.
        allow_streams: restore a table although a stream reads it.

    Raises:
        UsageError: there is no such table or version, or a stream reads the table and ``allow_streams`` is false.
        FraudlakeError: a step runs or was cut, or the version's files are gone. Nothing was changed.
    """
    table = require_table(name)
    with standstill(lake):
        before = lake.store.version(table)
        target = _version(lake, table, version, timestamp)
        if target == before:
            raise UsageError(f"{table.name} is at version {before} already")
        readers = [step for step in begun_steps(lake) if table.name in lake.checkpoint(step).notes.reads]
        if readers and not allow_streams:
            raise UsageError(
                f"{table.name} is read by {', '.join(readers)}, which keep the results of removed rows "
                "and do not read rows that come back: add --allow-streams to restore it anyway, and then "
                "'fraudlake replay --from DAY --to DAY --apply' to make days agree with bronze again"
            )
        rows_before = lake.store.count(Snapshot(table, before))
        try:
            SparkWriter(lake, table).replace(lake.read_version(table, target), {RESTORED: target})
        except PySparkException as error:
            raise FraudlakeError(
                f"version {target} of {table.name} cannot be read any more ({first_line(error)}): VACUUM removes files "
                "that a table no longer uses after the setting 'retention'; nothing was changed"
            ) from None
        after = lake.store.version(table)
        return Restored(table.name, target, before, after, rows_before, lake.store.count(Snapshot(table, after)))


def require_table(name: str) -> Table:
    """Return the table with a name.

    Raises:
        UsageError: there is no such table, or it is the ledger, which must agree with bronze, the lake's definition, or
            the record of approvals.
    """
    by_name = {table.name: table for table in contents.TABLES}
    if name == tables.BRONZE_FILES.name:
        raise UsageError(f"{name} says which files bronze_transactions holds: it cannot be restored without them")
    if name == tables.SILVER_DEFINITION.name:
        raise UsageError(f"{name} says what the lake is: 'fraudlake define' changes that")
    if name == tables.SILVER_APPROVAL_EVENTS.name:
        raise UsageError(f"{name} says who agreed to what: events are only added to it")
    if name not in by_name:
        nearest = get_close_matches(name, by_name, n=1, cutoff=0)
        raise UsageError(f"there is no table {name}; the nearest one is {nearest[0]}")
    return by_name[name]


def _version(lake: Lake, table: Table, version: int | None, timestamp: datetime | None) -> int:
    history = sorted(lake.store.history(table), key=lambda commit: commit.version)
    first = history[0]
    last = history[-1]
    if timestamp is None:
        if version not in {commit.version for commit in history}:
            raise UsageError(f"{table.name} has no version {version}: it has {first.version} to {last.version}")
        return version
    earlier = [commit.version for commit in history if commit.at <= timestamp]
    if not earlier:
        raise UsageError(
            f"{table.name} had no version at {timestamp:%Y-%m-%d %H:%M:%S} UTC: "
            f"its oldest, {first.version}, is of {first.at:%Y-%m-%d %H:%M:%S}"
        )
    return earlier[-1]
