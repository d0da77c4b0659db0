"""The Julian calendar: converts days before 15 October 1582, as Spark's legacy mode counts them, to our calendar."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fraudlake.times import calendar

_GREGORIAN = -141_427
"""The day that the Gregorian calendar began with, 15 October 1582, in days since 1970."""
_VERSION = b"org.apache.spark.version"
_LEGACY = {
    "INT96": (b"org.apache.spark.legacyINT96", b"3.1.0"),
    "INT64": (b"org.apache.spark.legacyDateTime", b"3.0.0"),
    "INT32": (b"org.apache.spark.legacyDateTime", b"3.0.0"),
}
"""By parquet's type: the key of a footer that says that its days are counted so, and the first Spark that wrote it."""
Days = npt.NDArray[np.int64]


def corrected(batch: pa.RecordBatch, footer: pq.FileMetaData) -> pa.RecordBatch:
    """Correct the dates and timestamps of a file that Spark wrote in its legacy mode; leave all others as they are.

    Spark's readers do so too, in ``DataSourceUtils.datetimeRebaseSpec``. The clock's time stays, in UTC.

    Args:
        batch: rows of the file.
        footer: the file's footer.
    """
    metadata = footer.metadata or {}
    if _VERSION not in metadata:
        return batch
    leaves = {leaf.path: leaf.physical_type for leaf in map(footer.schema.column, range(footer.num_columns))}
    for at, name in enumerate(batch.schema.names):
        key, since = _LEGACY.get(leaves.get(name, ""), (_VERSION, metadata[_VERSION]))
        if key != _VERSION and (key in metadata or metadata[_VERSION] < since):
            batch = batch.set_column(at, name, _corrected(batch.column(at)))
    return batch


def _corrected(column: pa.Array) -> pa.Array:
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        return column
    is_date = pa.types.is_date32(kind)
    ticks = column.cast(pa.int32() if is_date else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    per_day = 1 if is_date else 86_400 * calendar.TICKS_PER_SECOND[kind.unit]
    days = ticks // per_day
    if not (days < _GREGORIAN).any():
        return column
    shifted = ticks + np.where(days < _GREGORIAN, _gregorian(days) - days, 0) * per_day
    values = pa.array(shifted.astype(np.int32) if is_date else shifted, mask=column.is_null().to_numpy(False))
    return values.cast(kind)


def _gregorian(days: Days) -> Days:
    """Convert days since 1970 in the Julian calendar to the Gregorian days with the same dates."""
    # A year that begins in March ends with the leap day. Day 0 is 1 March of the year 0, by either calendar.
    since = days + 719_470
    years = (4 * since + 3) // 1461
    of_year = since - 1461 * years // 4
    return of_year + 365 * years + years // 4 - years // 100 + years // 400 - 719_468
