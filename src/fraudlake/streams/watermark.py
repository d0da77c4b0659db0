"""Watermark: the newest event time in silver, less the delay of late rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.times.calendar import MICROSECOND

if TYPE_CHECKING:
    from pyspark.sql import Column

    from fraudlake.lake import Lake


def watermark(lake: Lake) -> Column:
    """Return the watermark as a literal timestamp, before which there are only late rows; null if silver has none."""
    newest_day = lake.store.query(
        f"SELECT max(date) AS day FROM {tables.SILVER_TRANSACTIONS.name}", tables.SILVER_TRANSACTIONS
    )["day"][0].as_py()
    if newest_day is None:
        return F.lit(None).cast("timestamp")
    of_day = f"WHERE date = DATE '{newest_day}'"
    newest = lake.store.query(
        f"SELECT max(timestamp) AS time FROM {tables.SILVER_TRANSACTIONS.name} {of_day}", tables.SILVER_TRANSACTIONS
    )["time"][0].value
    # A number, which no time zone can change.
    return F.timestamp_micros(F.lit(newest - lake.settings.max_out_of_orderness // MICROSECOND))
