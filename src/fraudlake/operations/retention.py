"""Retention of rows: removes rows older than a table's limit, and counts them in ``gold_row_removals``.

The record of a commit says that it removed old rows. Their number is the difference between two versions; it is noted
afterwards, once per commit, by the table's identity and version. If a process is killed in between, the commit is not
noted: :func:`removed` counts it anyway, and the next :func:`remove_old_rows` notes it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import conflict, contents, machine_clock
from fraudlake.lake.spark_writer import SparkWriter
from fraudlake.lake.store import Snapshot
from fraudlake.settings.features import require_kept
from fraudlake.silver import quality_rules
from fraudlake.times import durations

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.commit import Commit
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

_LOG = logging.getLogger(__name__)
RETENTION = "row_retention"
RESTORED = "restored"
"""Keys of a commit's record, with the first day whose rows stay, or with the restored version."""

_OLD = {
    tables.BRONZE_TRANSACTIONS.name: "{date} OR (date IS NULL AND _ingested_at < {time})",
    tables.BRONZE_FAST_ALERTS.name: "{date} OR (date IS NULL AND _ingested_at < {time})",
    tables.SILVER_QUARANTINE.name: "dt < {time} OR (dt IS NULL AND quarantined_at < {time})",
    tables.SILVER_ALERTS.name: "timestamp < {time}",
    tables.SILVER_SHADOW_ALERTS.name: "timestamp < {time}",
    tables.SILVER_SUPPRESSED_ALERTS.name: "timestamp < {time}",
    tables.SILVER_DELIVERIES.name: "timestamp < {time}",
    tables.GOLD_REVIEW_QUEUE.name: "day < CAST({time} AS DATE)",
}
_CHAINED = (tables.SILVER_REVIEW_EVENTS.name, tables.SILVER_APPROVAL_EVENTS.name)
"""Tables whose rows stay, since a chain of hashes goes through all of them."""
_OLD |= {
    table.name: "{date}"
    for table in contents.TABLES
    if "date" in table.column_names and table.name not in (*_OLD, *_CHAINED)
}
"""The condition that a row is old, by the name of each table that may have a limit. A row without a time has its
time of arrival."""
_ASIDE = {
    tables.BRONZE_TRANSACTIONS.name: "_topic IS NOT NULL",
    tables.SILVER_QUARANTINE.name: f"array_contains(reasons, '{quality_rules.LATE}')",
}
"""Rows that ``status`` counts separately: Kafka's are not in the ledger, and late ones are in silver, too."""

Entry = dict[str, Any]
"""A row of ``gold_row_removals``."""


@dataclass(frozen=True)
class Removed:
    """Number of rows removed from each table, and how many of them came from Kafka (bronze) or late (quarantine)."""

    rows: Mapping[str, int]
    from_kafka_or_late: Mapping[str, int]


def require_known(settings: Settings) -> None:
    """Refuse a limit for a table that does not exist or cannot have one.

    Raises:
        UsageError: the message names the table, and the nearest one that can have a limit.
    """
    for name in settings.row_retention:
        if name not in _OLD:
            nearest = get_close_matches(name, _OLD, n=1, cutoff=0)
            reasons = {table.name: "its rows are not of a day" for table in contents.TABLES}
            reasons |= dict.fromkeys(_CHAINED, "who decided what stays, unless an account is forgotten")
            reasons |= {view.name: "it is a view" for view in contents.VIEWS}
            reason = reasons.get(name, "no such table")
            raise UsageError(f"row_retention: {name}: {reason}; the nearest one that can have a limit is {nearest[0]}")


def remove_old_rows(lake: Lake, histories: dict[str, list[Commit]] | None = None) -> dict[str, int]:
    """Remove the rows that are older than the limits of the setting ``row_retention``; streams may continue.

    Warns of features that look back further than a limit.

    Args:
        lake: the lake.
        histories: receives, by name, the histories that were read of tables that lose no rows.

    Returns:
        How many rows were removed now, by table; tables that lost none are missing.

    Raises:
        UsageError: see :func:`require_known`.
        FraudlakeError: the clock may be ahead; no row was removed.
    """
    require_known(lake.settings)
    try:
        require_kept(lake.settings.features, lake.settings.row_retention)
    except UsageError as error:
        _LOG.warning(str(error))
    histories = {} if histories is None else histories
    _note(lake, contents.TABLES, histories)
    due = _due(lake)
    if due:
        machine_clock.require(lake)
    for table, first_day in due.items():
        conflict.retried(
            partial(SparkWriter(lake, table).remove, old_rows(table, first_day), {RETENTION: str(first_day)})
        )
        histories.pop(table.name, None)
    return {entry["table_name"]: entry["rows"] for entry in _note(lake, [*due], {})}


def _due(lake: Lake) -> dict[Table, date]:
    """Return the tables with rows older than their limit, by the clock, and the first day whose rows stay."""
    now = datetime.now(UTC)
    limits = {table: lake.settings.row_retention.get(table.name) for table in contents.TABLES}
    first_days = {table: (now - limit).date() for table, limit in limits.items() if limit is not None}
    return {table: day for table, day in first_days.items() if lake.store.count(table, old_rows(table, day))}


def old_rows(table: Table, first_day: date) -> str:
    """Return the SQL condition, for Spark and DataFusion, that a row is from before a day."""
    return _OLD[table.name].format(date=f"date < DATE '{first_day}'", time=f"TIMESTAMP '{first_day} 00:00:00Z'")


def removed(lake: Lake) -> Removed:
    """Count the rows that were removed and not restored, noted or not; on a laptop without Spark."""
    rows = Counter[str]()
    aside = Counter[str]()
    noted = _noted(lake)
    for table in contents.TABLES:
        for entry in [*_noted_entries(lake, table, noted), *_not_noted(lake, table, noted, {})]:
            rows[table.name] += entry["rows"]
            aside[table.name] += entry["rows_from_kafka_or_late"]
    return Removed({name: count for name, count in rows.items() if count}, aside)


def first_whole_day(lake: Lake, *names: str) -> date | None:
    """Return the first day from which on these tables have lost no row; None if they have lost none at all."""
    noted = _noted(lake)
    days = []
    for table in contents.TABLES:
        if table.name not in names:
            continue
        entries = [*_noted_entries(lake, table, noted), *_not_noted(lake, table, noted, {})]
        days += [entry["first_day"] for entry in entries[-1:] if entry["first_day"] is not None]
    return max(days, default=None)


def require_rows(lake: Lake, first: date, reach: timedelta, *names: str) -> None:
    """Refuse a day if these tables have lost rows that rules, which look so far back, need from that day on.

    Raises:
        UsageError: the message names the first day that can be chosen.
    """
    whole = first_whole_day(lake, *names)
    if whole is not None and first - whole < reach:
        raise UsageError(
            f"--from {first}: rows before {whole} have left by row_retention, and the rules look "
            f"{durations.text(reach)} back: choose {whole + timedelta(days=1 + reach.days)} or later"
        )


def _noted(lake: Lake) -> list[Entry]:
    entries: list[Entry] = lake.store.query(
        f"SELECT * FROM {tables.GOLD_ROW_REMOVALS.name} ORDER BY version", tables.GOLD_ROW_REMOVALS
    ).to_pylist()
    return entries


def _noted_entries(lake: Lake, table: Table, noted: list[Entry]) -> list[Entry]:
    """Return the noted entries of a table, the oldest first."""
    entries = [entry for entry in noted if entry["table_name"] == table.name]
    identity = lake.store.identity(table) if entries else ""
    return [entry for entry in entries if entry["table_id"] == identity]


def _note(lake: Lake, among: Sequence[Table], histories: dict[str, list[Commit]]) -> list[Entry]:
    """Note the commits of some tables that are not noted yet; in a workspace, each table takes a query.

    Their histories are added to ``histories``.
    """
    new: list[Entry] = []
    noted = _noted(lake) if among else []
    for table in among:
        for entry in _not_noted(lake, table, noted, histories):
            _record(lake, entry)
            new.append(entry)
    return new


def _record(lake: Lake, entry: dict[str, Any]) -> None:
    rows = pa.Table.from_pylist([entry], tables.GOLD_ROW_REMOVALS.schema)
    transaction = (f"row-removals-{entry['table_id']}", entry["version"])
    conflict.retried(lambda: lake.writer(tables.GOLD_ROW_REMOVALS).write(rows, "append", transaction))


def _not_noted(lake: Lake, table: Table, noted: list[Entry], histories: dict[str, list[Commit]]) -> list[Entry]:
    if table.name not in _OLD:
        return []
    entries = _noted_entries(lake, table, noted)
    history = lake.store.history(table)
    histories[table.name] = history
    last = entries[-1]["version"] if entries else -1
    commits = [commit for commit in history if commit.version > last]
    commits = [commit for commit in commits if {RETENTION, RESTORED} & commit.record.keys()]
    new: list[Entry] = []
    for commit in sorted(commits, key=lambda commit: commit.version):
        new += _entries(lake, table, commit, [*entries, *new])
    return new


def _entries(lake: Lake, table: Table, commit: Commit, before: list[Entry]) -> list[Entry]:
    """Return the entry of a commit; empty for a restore that neither brings back nor removes old rows."""
    if RETENTION in commit.record:
        first_day: date | None = date.fromisoformat(commit.record[RETENTION])
        earlier = Snapshot(table, commit.version - 1)
        later = Snapshot(table, commit.version)
        rows, aside = (
            lake.store.count(earlier, condition) - lake.store.count(later, condition)
            for condition in ("true", _ASIDE.get(table.name, "false"))
        )
    else:
        then = [entry for entry in before if entry["version"] <= commit.record[RESTORED]]
        first_day = then[-1]["first_day"] if then else None
        rows, aside = (
            sum(entry[name] for entry in then) - sum(entry[name] for entry in before)
            for name in ("rows", "rows_from_kafka_or_late")
        )
        if not rows:
            return []
    values = (table.name, lake.store.identity(table), commit.version, rows, aside, first_day, commit.at)
    return [dict(zip(tables.GOLD_ROW_REMOVALS.column_names, values, strict=True))]
