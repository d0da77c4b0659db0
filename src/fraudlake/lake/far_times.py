"""Far times: times that delta-rs reads as other ones in files of an earlier version."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

_FIRST, _LAST = datetime(1677, 9, 22, tzinfo=UTC), datetime(2262, 4, 11, tzinfo=UTC)
"""Between these times, 64 bits count nanoseconds since 1970."""


def in_nanoseconds(schema: pa.Schema) -> list[pa.Field]:
    """Return the times of a parquet file, given by its schema, that delta-rs reads in nanoseconds (seen in 1.6).

    They are INT96, which Spark writes by default; a time before 1677 or after 2262 is read as another one.
    """
    return [field for field in schema if pa.types.is_timestamp(field.type) and field.type.unit == "ns"]


def beyond_nanoseconds(delta: DeltaTable) -> list[str]:
    """Return the paths of the files that have times before 1677 or after 2262, by the statistics in the log."""
    files = pa.table(delta.get_add_actions(flatten=True))
    is_beyond = pa.array([False] * len(files), pa.bool_())
    for column in (column for column in files.columns if pa.types.is_timestamp(column.type)):
        beyond = pc.or_(pc.less(column, _FIRST), pc.greater(column, _LAST))
        is_beyond = pc.or_(is_beyond, pc.fill_null(beyond, False))
    return list(files["path"].filter(is_beyond).to_pylist())
