"""Contents: every table and view of a lake."""

from __future__ import annotations

from fraudlake import gold, tables

TABLES = (*tables.TABLES, *(aggregate.table for aggregate in gold.AGGREGATES))
VIEWS = gold.VIEWS
