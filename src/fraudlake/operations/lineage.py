"""Lineage: traces an alert back to its rule, its transactions, their landed rows, and the commits of all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.detection import rule_table
from fraudlake.errors import UsageError
from fraudlake.lake.commit import row_changes
from fraudlake.lake.store import Snapshot
from fraudlake.silver import source_position
from fraudlake.text.sql_text import literal, one_of

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.tables import Table

_PLACE = (*tables.SOURCE_POSITION, "path")
_VALUES = (*tables.PAYLOAD, "_rescued_data", "_ingested_at")


@dataclass(frozen=True)
class Arrival:
    """The commit that added a row to a table.

    ``is_first`` is false if an earlier version may have had the row and cannot be read any more: VACUUM has removed
    its files, or Delta its log.
    """

    version: int
    at: datetime
    is_first: bool


@dataclass(frozen=True)
class Origin:
    """A transaction of an alert, and its row of bronze; each is empty if its table lacks it."""

    variable: str
    """The rule's name for it."""
    transaction: dict[str, Any]
    landed: dict[str, Any]
    """``file, path, row``, or ``topic, partition, offset``."""
    values: dict[str, Any]
    """The landed values by bronze's column names, and ``_ingested_at``."""
    taken: dict[str, Arrival | None] = field(default_factory=dict)
    """The commits that added the transaction to ``silver`` and the row to ``bronze``; None if no readable version has
    it."""


@dataclass(frozen=True)
class Lineage:
    """Where an alert comes from."""

    alert: dict[str, Any]
    rule: dict[str, Any]
    """The rule; only its name if the lake lacks it."""
    taken: Arrival | None
    """The commit of the alert."""
    transactions: list[Origin]
    """The transactions that raised it, in order."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return asdict(self)


def explain(lake: Lake, alert_id: str) -> Lineage:
    """Trace an alert back to its sources; on a laptop without Spark.

    Raises:
        UsageError: there is no such alert.
    """
    is_alert = f"alert_id = {literal(alert_id)}"
    alerts = lake.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} WHERE {is_alert}", tables.SILVER_ALERTS
    ).to_pylist()
    if not alerts:
        raise UsageError(f"{alert_id}: silver_alerts has no such alert_id{_newest(lake)}")
    (origins_of_alert,) = origins(lake, alerts)
    return Lineage(
        alerts[0],
        _rule(lake, alerts[0]["rule"], alerts[0]["rule_version"]),
        _find_commit(lake, tables.SILVER_ALERTS, is_alert),
        [replace(origin, taken=_commits(lake, origin.transaction)) for origin in origins_of_alert],
    )


def _newest(lake: Lake) -> str:
    newest = lake.store.query(
        f"SELECT alert_id FROM {tables.SILVER_ALERTS.name} ORDER BY detected_at DESC LIMIT 1", tables.SILVER_ALERTS
    )["alert_id"].to_pylist()
    return f"; that of its newest alert is {newest[0]}" if newest else ", and no alert yet: run 'fraudlake detect'"


def _commits(lake: Lake, transaction: dict[str, Any]) -> dict[str, Arrival | None]:
    if not transaction:
        return {}
    is_row = f"date = DATE '{transaction['date']}' AND transaction_id = {literal(transaction['transaction_id'])}"
    is_landed = source_position.at([(transaction["source"], transaction["position"])])
    return {
        "silver": _find_commit(lake, tables.SILVER_TRANSACTIONS, is_row),
        "bronze": _find_commit(lake, tables.BRONZE_TRANSACTIONS, is_landed),
    }


def origins(lake: Lake, alerts: list[dict[str, Any]]) -> list[list[Origin]]:
    """Return the transactions of each alert, with their rows of bronze."""
    evidence_of_alerts = [alert["evidence"] for alert in alerts]
    ids = sorted({part["transaction_id"] for parts in evidence_of_alerts for part in parts})
    days = sorted({part["timestamp"].date() for parts in evidence_of_alerts for part in parts})
    silver = lake.store.query(
        f"SELECT * FROM {tables.SILVER_TRANSACTIONS.name} "
        f"WHERE {one_of('date', days)} AND {one_of('transaction_id', ids)}",
        tables.SILVER_TRANSACTIONS,
    )
    transactions = {row["transaction_id"]: row for row in silver.to_pylist()}
    landed = _landed(lake, [(row["source"], row["position"]) for row in transactions.values()])

    def origin(part: dict[str, Any]) -> Origin:
        transaction = transactions.get(part["transaction_id"], {})
        row = landed.get((transaction.get("source"), transaction.get("position")), {})
        return Origin(
            part["variable"],
            transaction,
            {name.removeprefix("_source_").removeprefix("_"): row[name] for name in row if name in _PLACE},
            {name: row[name] for name in row if name in (*_VALUES, *lake.settings.columns)},
        )

    return [[origin(part) for part in parts] for parts in evidence_of_alerts]


def _landed(lake: Lake, positions: list[tuple[str, int]]) -> dict[tuple[str | None, int | None], dict[str, Any]]:
    """Return rows of bronze by their source position, without nulls; ``path`` is the full path of their file."""
    if not positions:
        return {}
    rows = lake.store.query(
        f"SELECT *, {source_position.COLUMNS} FROM {tables.BRONZE_TRANSACTIONS.name} "
        f"WHERE {source_position.at(positions)}",
        tables.BRONZE_TRANSACTIONS,
    ).to_pylist()
    files = sorted({row["_source_file"] for row in rows if row["_source_file"] is not None})
    paths = {}
    if files:
        named = f"WHERE {one_of('_source_file', files)} ORDER BY noted_at"
        entries = lake.store.query(
            f"SELECT _source_file, path FROM {tables.BRONZE_FILES.name} {named}", tables.BRONZE_FILES
        ).to_pylist()
        paths = {entry["_source_file"]: entry["path"] for entry in entries}
    return {
        (row["source"], row["position"]): {
            name: value for name, value in (row | {"path": paths.get(row["_source_file"])}).items() if value is not None
        }
        for row in rows
    }


def _find_commit(lake: Lake, table: Table, condition: str) -> Arrival | None:
    """Find the first version of a table that has a row, by binary search, since rows stay."""
    commits = sorted(row_changes(lake.store.history(table), 0), key=lambda commit: commit.version)
    low = 0
    high = len(commits)
    is_readable = True
    while low < high:
        middle = (low + high) // 2
        has_row = _has(lake, table, condition, commits[middle].version)
        if has_row:
            high = middle
        else:
            low = middle + 1
            is_readable = has_row is not None
    if low == len(commits):
        return None
    return Arrival(commits[low].version, commits[low].at, is_readable)


def _has(lake: Lake, table: Table, condition: str, version: int) -> bool | None:
    """Return whether a version has a row; None if the version can no longer be read."""
    try:
        return bool(lake.store.count(Snapshot(table, version), condition))
    except Exception:  # by delta-rs, DataFusion or Spark, each its own
        return None


def _rule(lake: Lake, name: str, number: int | None) -> dict[str, Any]:
    """Return the version of a rule that raised an alert; by default the first, for alerts older than versions."""
    rules = rule_table.read(lake)
    if name not in rules.names:
        return {"name": name}
    version = rules.version_of(name, number or 1)
    fields = {"kind": version.rule.kind} | version.rule.model_dump(exclude_defaults=True)
    return {**fields, "version": version.version, "status": version.status}
