"""Verdicts from a file: analysts' decisions become rows of ``silver_verdicts``, each once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import literals, tables
from fraudlake.errors import UsageError
from fraudlake.lake.merge import merge, same
from fraudlake.lake.rows import persisted
from fraudlake.silver import verdicts

if TYPE_CHECKING:
    from fraudlake.lake import Lake

_ALERTS = (tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS)


@dataclass(frozen=True)
class Loaded:
    """Numbers of rows of a file that were inserted, were already in the table, and match nothing in the lake."""

    taken: int
    known: int
    unmatched: int
    unknown: list[str]
    """The ids that match no transaction, alert or case."""
    future: int
    """The number of verdicts in the file that are dated in the future: each counts from its ``decided_at`` on."""


def load(lake: Lake, file: Path) -> Loaded:
    """Insert the verdicts of a CSV (with a header) or parquet file; loading the same file again adds nothing.

    What is about a transaction, an alert or a case of the lake is inserted, whatever else the file holds.

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
    if "verdict" not in rows.columns or not {*verdicts.IDS} & {*rows.columns}:
        raise UsageError(f"{file}: needs the columns verdict, and transaction_id, alert_id or case_id")
    alerts = [lake.read(table).select("alert_id", "transaction_id") for table in _ALERTS]
    silver = lake.read(tables.SILVER_TRANSACTIONS)
    raised = alerts[0].unionByName(alerts[1])
    cases = lake.read(tables.GOLD_CASES).select(F.explode("alert_ids").alias("case_id"), "transaction_ids")
    with persisted(verdicts.from_file(rows, silver, raised, cases, written)) as given:
        unclear = given.where("verdict IS NULL OR given IS NULL").first()
        if unclear is not None and unclear["given"] is None:
            raise UsageError(f"{file}: a verdict has no transaction_id, alert_id or case_id")
        if unclear is not None:
            raise UsageError(f"{file}: the verdict on {unclear['given']} must be true or false")
        is_of_future = F.col("date").isNotNull() & (F.col("decided_at") > literals.instant(datetime.now(UTC)))
        counted = given.agg(F.count("*"), F.count_if(F.col("date").isNull()), F.count_if(is_of_future)).collect()[0]
        unknown = given.where("date IS NULL").select("given").distinct().orderBy("given").collect()
        with lake.exclusive("verdicts"):
            # The MERGE only inserts, so downstream streams read it as appended rows.
            merged = merge(
                lake,
                given.where("date IS NOT NULL").drop("given").distinct(),
                tables.SILVER_VERDICTS,
                same(("transaction_id", "verdict", "analyst", "decided_at")),
                "WHEN NOT MATCHED THEN INSERT *",
            )
            taken = int(merged["num_inserted_rows"])
    known = counted[0] - counted[1] - taken
    return Loaded(taken, known, counted[1], [row["given"] for row in unknown], counted[2])
