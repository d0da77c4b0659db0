"""Quarantine: counts the rejected rows by reason, and shows samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.silver import quality_rules, source_position
from fraudlake.text.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.tables import Table

_RAW = (*tables.PAYLOAD, "_rescued_data", "_raw", "_error")


@dataclass(frozen=True)
class Quarantine:
    """Content of the quarantine: ``reasons`` counts rows by rule; a row that broke several rules counts for each."""

    rows: int
    reasons: dict[str, int]
    samples: dict[str, list[dict[str, Any]]]


def quarantine(lake: Lake, rule: str | None, limit: int) -> Quarantine:
    """Count the quarantined rows, all or those that broke ``rule``, with the latest ``limit`` samples per rule.

    Raises:
        UsageError: there is no such rule.
    """
    groups = _grouped(lake, tables.SILVER_QUARANTINE, "reasons")
    counts = _by_name(groups)
    if rule is not None:
        require_known(lake, rule)
        groups = [(reasons, rows) for reasons, rows in groups if rule in reasons]
        counts = {name: count for name, count in counts.items() if name == rule}
    samples = {name: _samples(lake, name, limit) for name in counts}
    return Quarantine(sum(rows for _, rows in groups), counts, samples)


def count_by_name(lake: Lake, table: Table, names: str) -> dict[str, int]:
    """Count rows by the names in a column of arrays; a row with several names counts for each."""
    return _by_name(_grouped(lake, table, names))


def _grouped(lake: Lake, table: Table, names: str) -> list[tuple[list[str], int]]:
    """Count rows by their set of reasons: there are few sets, even if there are many rows."""
    groups = lake.store.query(
        f"SELECT {names} AS names, count(*) AS total FROM {table.name} WHERE {names} IS NOT NULL GROUP BY {names}",
        table,
    )
    return [(row["names"], row["total"]) for row in groups.to_pylist()]


def _by_name(groups: list[tuple[list[str], int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for names, rows in groups:
        for name in names:
            counts[name] += rows
    return dict(sorted(counts.items()))


def _samples(lake: Lake, rule: str, limit: int) -> list[dict[str, Any]]:
    """Return the latest rows that broke a rule."""
    latest = lake.store.query(
        f"SELECT *, {source_position.COLUMNS} FROM {tables.SILVER_QUARANTINE.name} "
        f"WHERE array_contains(reasons, {literal(rule)}) "
        f"ORDER BY quarantined_at DESC, source, position LIMIT {limit}",
        tables.SILVER_QUARANTINE,
    )
    return [
        {
            "source": row["source"],
            "position": row["position"],
            # A new column exists only after a command that writes has opened the lake.
            **{name: _shown(row[name]) for name in raw_columns(lake) if row.get(name) is not None},
            "reasons": row["reasons"],
            "quarantined_at": _shown(row["quarantined_at"]),
        }
        for row in latest.to_pylist()
    ]


def raw_columns(lake: Lake) -> tuple[str, ...]:
    """Return the columns of a quarantined row with the landed values."""
    return (*_RAW, *lake.settings.columns)


def require_known(lake: Lake, rule: str) -> None:
    """Reject names that are not quality rules; columns that are no longer declared may still be reasons.

    Raises:
        UsageError: there is no such rule; the message names the known ones.
    """
    rules = quality_rules.reasons(lake.settings)
    if rule not in rules and rule not in count_by_name(lake, tables.SILVER_QUARANTINE, "reasons"):
        raise UsageError(f"--rule {rule}: there is no such rule; there are {', '.join(rules)}")


def broken(rows: DataFrame, rule: str) -> DataFrame:
    """Filter rows by a rule that they broke."""
    return rows.where(F.array_contains("reasons", rule))


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)  # it is in UTC
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
