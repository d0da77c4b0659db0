"""Verdicts from a file: analysts' decisions become rows of ``silver_verdicts``, each once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake.merge import merge, same
from fraudlake.lake.rows import persisted
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Loaded:
    """Numbers of a file's rows: inserted, already in the table, and of transactions that silver does not have."""

    taken: int
    known: int
    strange: int


def load(lake: Lake, file: Path) -> Loaded:
    """Insert the verdicts of a CSV (with a header) or parquet file; loading the same file again adds nothing.

    Raises:
        UsageError: the file does not exist, lacks a column, or has a verdict that is neither true nor false.
    """
    try:
        written = datetime.fromtimestamp(int(file.stat().st_mtime), UTC)
    except OSError as error:
        raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    path = str(file.absolute())
    is_parquet = file.suffix == ".parquet" or file.is_dir()
    rows = lake.session.read.parquet(path) if is_parquet else lake.session.read.option("header", "true").csv(path)
    lacking = [name for name in verdicts.REQUIRED if name not in rows.columns]
    if lacking:
        raise UsageError(f"{file}: has no column {' and no '.join(lacking)}; needed are transaction_id and verdict")
    with persisted(verdicts.from_file(rows, lake.read(tables.SILVER_TRANSACTIONS), written)) as given:
        unclear = given.where("verdict IS NULL").first()
        if unclear is not None:
            raise UsageError(f"{file}: the verdict on {unclear['transaction_id']} must be true or false")
        counted = given.agg(F.count("*"), F.count_if(F.col("date").isNull())).collect()[0]
        with lake.exclusive("verdicts"):
            # The MERGE only inserts, so downstream streams read it as appended rows.
            merged = merge(
                lake,
                given.where("date IS NOT NULL"),
                tables.SILVER_VERDICTS,
                same(("transaction_id", "verdict", "analyst", "decided_at")),
                "WHEN NOT MATCHED THEN INSERT *",
            )
            taken = int(merged["num_inserted_rows"])
    return Loaded(taken, counted[0] - counted[1] - taken, counted[1])
