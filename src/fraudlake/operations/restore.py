"""Restore: brings back the rows of an earlier version of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from fraudlake import tables
from fraudlake.approvals import gate
from fraudlake.approvals.gate import Effect
from fraudlake.approvals.log import Proposal
from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake.lake import contents
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.store import Snapshot
from fraudlake.operations.retention import RESTORED
from fraudlake.operations.standstill import begun_steps, standstill

if TYPE_CHECKING:
    from fraudlake.approvals.request import Request
    from fraudlake.lake import Lake
    from fraudlake.tables import Table

_REQUEST = "request"
"""The part of a commit's record that has the number of the approved request."""


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
    lake: Lake,
    name: str,
    version: int | None,
    timestamp: datetime | None = None,
    allow_streams: bool = False,
    reason: str | None = None,
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
        reason: why, for the second person, if the lake needs two.

    Raises:
        UsageError: there is no such table or version, or a stream reads the table and ``allow_streams`` is false.
        WaitingError: a second person must agree.
        FraudlakeError: a step runs or was cut, or the version's files are gone. Nothing was changed.
    """
    table = require_table(name)
    with standstill(lake):
        target = _version(lake, table, version, timestamp)
        _require_restorable(lake, table, target, allow_streams)
        after = {"version": f"{target} again", "number of rows": _rows(lake, table, target)}
        arguments = {"table": name, "version": target, "allow_streams": allow_streams}
        proposal = Proposal("restore", f"{name} to version {target}", _present(lake, table), after, arguments)
        gate.require(lake.store, proposal, None, reason)
        return _restore(lake, table, target, {RESTORED: target})


def _require_restorable(lake: Lake, table: Table, target: int, allow_streams: bool) -> None:
    """Refuse the present version, and a table that a stream reads."""
    if target == lake.store.version(table):
        raise UsageError(f"{table.name} is at version {target} already")
    readers = [step for step in begun_steps(lake) if table.name in lake.checkpoint(step).notes.reads]
    if readers and not allow_streams:
        raise UsageError(
            f"{table.name} is read by {', '.join(readers)}, which keep the results of removed rows "
            "and do not read rows that come back: add --allow-streams to restore it anyway, and then "
            "'fraudlake replay --from DAY --to DAY --apply' to make days agree with bronze again"
        )


def _restore(lake: Lake, table: Table, target: int, record: dict[str, int]) -> Restored:
    before = lake.store.version(table)
    rows_before = _rows(lake, table, before)
    try:
        SparkWriter(lake, table).replace(lake.read_version(table, target), record)
    except PySparkException as error:
        raise FraudlakeError(
            f"version {target} of {table.name} cannot be read any more ({first_line(error)}): VACUUM removes files "
            "that a table no longer uses after the setting 'retention'; nothing was changed"
        ) from None
    after = lake.store.version(table)
    return Restored(table.name, target, before, after, rows_before, _rows(lake, table, after))


def _rows(lake: Lake, table: Table, version: int) -> int:
    return lake.store.count(Snapshot(table, version))


def _present(lake: Lake, table: Table) -> dict[str, Any]:
    """Return the version that last changed a table's rows, and their number."""
    return {"version": str(lake.store.data_version(table)), "number of rows": lake.store.count(table)}


def _state(lake: Lake, request: Request) -> dict[str, Any]:
    table = require_table(request.arguments["table"])
    if any(commit.record.get(_REQUEST) == request.number for commit in lake.store.history(table)):
        return request.after
    return _present(lake, table)


def _carry_out(lake: Lake, request: Request) -> None:
    """Restore the table of a request, unless that was done before."""
    table = require_table(request.arguments["table"])
    with standstill(lake):
        if _state(lake, request) == request.before:
            target = int(request.arguments["version"])
            _require_restorable(lake, table, target, request.arguments["allow_streams"])
            _restore(lake, table, target, {RESTORED: target, _REQUEST: request.number})


EFFECT = Effect(_state, _carry_out)
"""How approved restores take effect, in a lake."""


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
