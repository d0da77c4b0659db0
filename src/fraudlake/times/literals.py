"""Literals: makes columns from dates and times of any year, with which Delta can still skip files."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake.times.calendar import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from pyspark.sql import Column


def day(value: date | None) -> Column:
    """Return a date, cast from a text, since PySpark's own literal fails before the year 1000 (seen in PySpark 4.2)."""
    return F.lit(None if value is None else value.isoformat()).cast("date")


def instant(value: datetime) -> Column:
    """Return a time, converted from a number, which no time zone or calendar can change."""
    return F.timestamp_micros(F.lit((value - EPOCH) // MICROSECOND))
