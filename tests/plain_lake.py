"""Plain lake: a lake with all its tables that delta-rs makes, in a second and without Spark, for commands that read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake

from fraudlake.lake import contents
from fraudlake.tables import Table


def make(root: Path) -> Path:
    """Make a lake without rows."""
    for table in contents.TABLES:
        partitions = list(table.partitioned_by)
        DeltaTable.create(root / "tables" / table.name, Schema.from_arrow(table.schema), partition_by=partitions)
    (root / "lake.json").write_text(json.dumps({"format": 1}))
    (root / "landing").mkdir()
    return root


def fill(root: Path, table: Table, *rows: dict[str, Any]) -> None:
    """Append rows; what they do not name is null."""
    write_deltalake(root / "tables" / table.name, pa.Table.from_pylist(list(rows), table.schema), mode="append")
