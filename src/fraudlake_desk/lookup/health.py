"""Health: counts the rows of each layer, and collects quarantine reasons, feature drift and prediction quality."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.silver import source_position

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

_LATE = "late"
"""The reason of late rows: ``quality_rules.LATE``, whose module loads pyspark."""
SAMPLES = 3
"""Rows shown for each reason for quarantine."""
_WAY = (
    (tables.BRONZE_TRANSACTIONS, "_ingested_at"),
    (tables.SILVER_TRANSACTIONS, "timestamp"),
    (tables.SILVER_QUARANTINE, "quarantined_at"),
    (tables.SILVER_ALERTS, "detected_at"),
    (tables.SILVER_SHADOW_ALERTS, "detected_at"),
    (tables.GOLD_CASES, "detected_at"),
    (tables.GOLD_FRAUD_PREDICTIONS, "scored_at"),
    (tables.SILVER_REVIEW_EVENTS, "at"),
    (tables.SILVER_VERDICTS, "decided_at"),
)
"""The tables from bronze to verdicts, each with the column that says how new a row is."""


@dataclass(frozen=True)
class Count:
    """A table's rows, and the newest time in them (UTC)."""

    table: tables.Table
    rows: int
    latest: datetime | None


@dataclass(frozen=True)
class Reason:
    """A reason for quarantine: its rows, and some of the latest."""

    name: str
    rows: int
    samples: list[dict[str, Any]]
    """``source, position, quarantined_at`` and the landed values that are not null."""


@dataclass(frozen=True)
class Health:
    """The state of the data."""

    way: list[Count]
    late: int
    """Late rows: they are both in silver and in quarantine."""
    removed: dict[str, int]
    """Rows that ``row_retention`` has removed, by table."""
    quarantine: list[Reason]
    """Reasons, the most frequent first."""
    drift: list[dict[str, Any]]
    """Rows of ``gold_feature_drift`` of the latest day, the least stable feature first."""
    quality: list[dict[str, Any]]
    """Rows of ``gold_prediction_quality`` of the latest days, the latest first."""

    def rows(self, table: tables.Table) -> int:
        """Return the number of a table's rows."""
        return next(count.rows for count in self.way if count.table is table)

    @property
    def landed(self) -> int:
        """Rows that have landed in bronze, including those removed since."""
        return self._ever(tables.BRONZE_TRANSACTIONS)

    @property
    def refined(self) -> int:
        """Rows that ``refine`` has read from bronze, each counted once."""
        return self._ever(tables.SILVER_TRANSACTIONS) + self._ever(tables.SILVER_QUARANTINE) - self.late

    def _ever(self, table: tables.Table) -> int:
        return self.rows(table) + self.removed.get(table.name, 0)


def health(store: Store) -> Health:
    """Return the health of a lake."""
    reasons = _reasons(store)
    removals = tables.GOLD_ROW_REMOVALS
    name = tables.GOLD_ROW_REMOVALS.name
    removed = store.query(f"SELECT table_name, sum(rows) AS rows FROM {name} GROUP BY table_name", removals).to_pylist()
    late = f"SELECT sum(rows_from_kafka_or_late) AS late FROM {name} WHERE table_name = 'silver_quarantine'"
    removed_late = store.query(late, removals)["late"][0].as_py() or 0
    return Health(
        way=[_count(store, table, newest) for table, newest in _WAY],
        late=sum(reason.rows for reason in reasons if reason.name == _LATE) + removed_late,
        removed={row["table_name"]: row["rows"] for row in removed},
        quarantine=reasons,
        drift=_drift(store),
        quality=_quality(store),
    )


def _count(store: Store, table: tables.Table, newest: str) -> Count:
    (row,) = store.query(f"SELECT count(*) AS rows, max({newest}) AS latest FROM {table.name}", table).to_pylist()
    return Count(table, row["rows"], row["latest"])


def _reasons(store: Store) -> list[Reason]:
    table = tables.SILVER_QUARANTINE
    groups = store.query(f"SELECT reasons, count(*) AS rows FROM {table.name} GROUP BY reasons", table).to_pylist()
    counts: dict[str, int] = {}
    for group in groups:
        for name in group["reasons"] or ():
            counts[name] = counts.get(name, 0) + group["rows"]
    statement = f"SELECT *, {source_position.COLUMNS} FROM {table.name} ORDER BY quarantined_at DESC LIMIT 500"
    latest = store.query(statement, table).to_pylist()
    return [
        Reason(name, rows, [_sample(row) for row in latest if name in (row["reasons"] or ())][:SAMPLES])
        for name, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    named = ("source", "position", "quarantined_at")
    hidden = (*named, *tables.SOURCE_POSITION, "_ingested_at", "_misfits", "date", "reasons")
    values = {
        name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for name, value in row.items()
        if value is not None and name not in hidden
    }
    return {**{name: row[name] for name in named}, "values": values}


def _drift(store: Store) -> list[dict[str, Any]]:
    table = tables.GOLD_FEATURE_DRIFT
    latest = f"date = (SELECT max(date) FROM {table.name})"
    rows = store.query(f"SELECT * FROM {table.name} WHERE {latest} ORDER BY psi DESC", table).to_pylist()
    newest = max((int(row["model_version"]) for row in rows), default=0)
    return [row for row in rows if int(row["model_version"]) == newest]


def _quality(store: Store, days: int = 7) -> list[dict[str, Any]]:
    table = tables.GOLD_PREDICTION_QUALITY
    latest = f"SELECT * FROM {table.name} ORDER BY date DESC, model_version DESC, judged_by LIMIT {days * 2}"
    return [*store.query(latest, table).to_pylist()]
