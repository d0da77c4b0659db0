"""A column that a version adds: the tables of a lake take it on, and its streams continue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake import contents
from fraudlake.streams import detect, stream
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected

pytestmark = pytest.mark.stream

NEW = "channel STRING where the card was used"


@pytest.mark.long
def test_a_new_column_reaches_a_lake_that_is_there_and_its_streams_go_on(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(buckets=2)
    assert detected(opened, [Row("1", MARCH_7, 0.5, "part-0", 0)]) == []

    before = tables.SILVER_TRANSACTIONS
    after = replace(before, described=f"{before.described}\n{NEW}")
    monkeypatch.setattr(tables, "SILVER_TRANSACTIONS", after)
    monkeypatch.setattr(contents, "TABLES", tuple(after if table is before else table for table in contents.TABLES))
    newer = lake(buckets=2)

    assert newer.read(tables.SILVER_TRANSACTIONS).columns[-1] == "channel"
    assert [row["channel"] for row in newer.read(tables.SILVER_TRANSACTIONS).collect()] == [None]
    # The state, from before the column was there, still holds the small transaction.
    newer.spark.sql(
        "INSERT INTO silver_transactions BY NAME "
        f"SELECT 'part-0-1' AS transaction_id, '1' AS account_id, timestamp_micros({MARCH_7 + SECOND}) AS timestamp, "
        "900D AS amount, 'part-0' AS source, 1L AS position, DATE'2026-03-07' AS date, 'online' AS channel"
    )
    stream.run(newer, detect.streams(newer), "available-now")
    alerts = newer.read(tables.SILVER_ALERTS).select("evidence.transaction_id").collect()
    assert [alert["transaction_id"] for alert in alerts] == [["part-0-0", "part-0-1"]]
    assert lake(buckets=2).read(tables.SILVER_TRANSACTIONS).where("channel = 'online'").count() == 1
