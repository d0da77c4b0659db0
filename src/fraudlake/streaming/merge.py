"""Merge: rows update, insert and delete rows of a table in one commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.lake import conflict
from fraudlake.streaming.rows import persisted

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame, Row

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


def merge(lake: Lake, rows: DataFrame, table: Table, on: str, *clauses: str) -> Row:
    """Run Delta's ``MERGE`` on a table; it is repeated where another writer commits in between.

    Args:
        lake: the lake, in the session of the rows.
        rows: the rows, ``s`` in the SQL.
        table: the table, ``t`` in the SQL.
        on: the condition under which two rows match.
        clauses: what to do with rows that match and with others, ``WHEN ...``.

    Returns:
        Delta's metrics: ``num_inserted_rows`` and others.
    """
    view = f"{table.name}_changes"
    rows.createOrReplaceTempView(view)
    statement = f"MERGE INTO {lake.name_of(table)} t USING {view} s ON {on} {' '.join(clauses)}"
    return conflict.retried(lambda: lake.session.sql(statement)).collect()[0]


def same(columns: Iterable[str]) -> str:
    """Return the condition that two rows are equal in columns, nulls included."""
    return " AND ".join(f"t.{column} <=> s.{column}" for column in columns)


def upsert(lake: Lake, rows: DataFrame, table: Table, keys: tuple[str, ...], dates: list[date]) -> None:
    """Replace the rows of the given dates with the same keys, and insert where there is none."""
    _apply(lake, rows.withColumn("gone", F.lit(False)), table, keys, dates)


def apply_changes(lake: Lake, changes: DataFrame, table: Table, keys: tuple[str, ...]) -> None:
    """Upsert changes, and delete rows.

    ``changes`` has the table's columns and ``gone``: where that is true, the row with the same keys is deleted.
    """
    with persisted(changes) as changes:
        dates = [row["date"] for row in changes.select("date").distinct().collect()]
        if dates:
            _apply(lake, changes, table, keys, dates)


def _apply(lake: Lake, changes: DataFrame, table: Table, keys: tuple[str, ...], dates: list[date]) -> None:
    within = ", ".join(f"DATE '{day}'" for day in dates)
    merge(
        lake,
        changes.select(*table.column_names, "gone"),
        table,
        f"{same(keys)} AND t.date IN ({within})",
        "WHEN MATCHED AND s.gone THEN DELETE",
        f"WHEN MATCHED AND NOT ({same(table.column_names)}) THEN UPDATE SET *",
        "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *",
    )
