"""Transactions: the oracle's rows go into ``silver_transactions``, and through the detector's stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from fraudlake import steps, tables
from fraudlake.streaming import stream
from tests.oracle import Row

SECOND = 1_000_000
MARCH_7 = 1_772_841_600 * SECOND


def land(lake: Any, rows: Iterable[Row]) -> None:
    """Append rows to silver_transactions, as one commit."""
    frame = pd.DataFrame(list(rows), columns=list(Row._fields))
    lake.session.createDataFrame(frame).selectExpr(
        "concat(source, '-', position) AS transaction_id",
        "account_id",
        "timestamp_micros(time) AS timestamp",
        "amount",
        "false AS label",
        "source",
        "position",
        "to_date(timestamp_micros(time)) AS date",
    ).write.format("delta").mode("append").saveAsTable(lake.name_of(tables.SILVER_TRANSACTIONS))


def detect(lake: Any, *batches: list[Row]) -> list[tuple[str, str]]:
    """Land each batch and run the stream over it, as a restarted process does; the pairs of small and large ones."""
    for rows in batches:
        land(lake, rows)
        stream.run(lake, steps.detect(lake), "available-now")
    alerts = lake.read(tables.SILVER_ALERTS).where("kind = 'small_then_large'")
    pairs = alerts.select("small_transaction_id", "transaction_id").collect()
    return sorted(tuple(row) for row in pairs)
