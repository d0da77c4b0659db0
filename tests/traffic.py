"""Traffic: simulated transactions, with the truth about each, become rows of ``silver_transactions``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fraudlake import tables
from fraudlake.lake import Lake
from fraudlake_tools import simulator

ROWS, DAYS = 12_000, 6
TRAFFIC = simulator.Traffic(accounts=30, rate=ROWS / DAYS / 86_400, fraud=0.03)
"""Fraud is more frequent than in reality, so that a small table has enough of it."""


def traffic() -> pa.Table:
    """Transactions with the truth about them; ``n`` is the row number."""
    rows = next(simulator._tables(TRAFFIC, ROWS))
    return rows.append_column("n", pa.array(range(ROWS)))


def add_to_silver(lake: Lake, rows: pa.Table, folder: Path, date: str = "to_date(dt)") -> None:
    """Append rows to ``silver_transactions`` as one file a date, which is computed by an SQL expression."""
    pq.write_table(rows, folder / "rows.parquet")
    lake.session.read.parquet(str(folder / "rows.parquet")).selectExpr(
        "concat('t', n) AS transaction_id",
        "accountId AS account_id",
        "CAST(dt AS TIMESTAMP) AS timestamp",
        "amount",
        "alert AS label",
        "'part-0' AS source",
        "n AS position",
        "CAST(NULL AS ARRAY<STRING>) AS warnings",
        f"{date} AS date",
    ).coalesce(1).write.format("delta").mode("append").saveAsTable(lake.name_of(tables.SILVER_TRANSACTIONS))
