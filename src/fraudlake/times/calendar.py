"""Calendar: the years 1 to 9999, which Spark's TIMESTAMP spans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
"""The first instant, in microseconds since 1970 UTC."""
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // MICROSECOND
"""The last instant, likewise."""
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def outside(times: pa.Array) -> pa.Array | None:
    """Return a mask of the timestamps outside these years; None if there are none."""
    if times.type.unit == "ns":  # nanoseconds in 64 bits span some 600 years
        return None
    ticks = times.cast(pa.int64())
    first, last = (end * TICKS_PER_SECOND[times.type.unit] // 10**6 for end in (FIRST, LAST))
    ends = pc.min_max(ticks).as_py()
    if ends["min"] is None or first <= ends["min"] <= ends["max"] <= last:
        return None
    return pc.or_(pc.less(ticks, first), pc.greater(ticks, last))
