"""Merge: updates, inserts and deletes rows of a table in one commit, by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fraudlake.lake import conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from fraudlake.lake import Lake
    from fraudlake.tables import Table


def merge(lake: Lake, rows: DataFrame, table: Table, on: str, *clauses: str) -> Row:
    """Run Delta's ``MERGE`` on a table; it is repeated if another writer commits in between.

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
