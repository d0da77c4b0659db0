from __future__ import annotations

from datetime import timedelta

from fraudlake import tables
from fraudlake.lake.workspace import WorkspaceLake
from fraudlake.settings import Settings


def test_tables_that_streams_read_keep_files_as_long_as_delta_keeps_their_log() -> None:
    """Predictive optimization runs VACUUM by the tables' property, and knows no streams."""

    def kept(days: int, table: tables.Table) -> int:
        lake = WorkspaceLake.__new__(WorkspaceLake)
        lake.settings = Settings(catalog="main", schema="fraud", retention=timedelta(days=days))
        return lake.file_retention(table).days

    assert [kept(7, table) for table in (tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE)] == [30, 7]
    assert [kept(40, table) for table in (tables.SILVER_TRANSACTIONS, tables.SILVER_QUARANTINE)] == [40, 40]
