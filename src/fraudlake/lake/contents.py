"""Contents: every table and view of a lake."""

from __future__ import annotations

from fraudlake import tables
from fraudlake.gold import gold_tables

TABLES = (*tables.TABLES, *(aggregate.table for aggregate in gold_tables.AGGREGATES))
VIEWS = gold_tables.VIEWS
