"""Contents: every table of a lake."""

from __future__ import annotations

from fraudlake import gold, tables

TABLES = (*tables.ALL, *(aggregate.table for aggregate in gold.AGGREGATES))
