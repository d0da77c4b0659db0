"""Plain lake: a lake with all its tables, without Spark, for commands that read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from fraudlake.lake import open_lake
from fraudlake.settings import Settings
from fraudlake.tables import Table


def make(root: Path) -> Path:
    """Make a lake without rows."""
    open_lake(Settings(lake=root))
    (root / "landing").mkdir()
    return root


def fill(root: Path, table: Table, *rows: dict[str, Any]) -> None:
    """Append rows; what they do not name is null."""
    write_deltalake(root / "tables" / table.name, pa.Table.from_pylist(list(rows), table.schema), mode="append")
