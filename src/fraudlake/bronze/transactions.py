"""Bronze transactions: landed parquet files become rows in Flink's schema, with the place that each came from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake import tables
from fraudlake.bronze import contract, landing, parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = pa.schema(
    [
        *contract.CONTRACT,
        ("_rescued_data", pa.string()),
        ("_raw", pa.binary()),
        ("_error", pa.string()),
        ("_source_file", pa.string()),
        ("_source_row", pa.int64()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_ingested_at", pa.timestamp("us", tz="UTC")),
        ("date", pa.date32()),
    ]
)
"""The columns of ``bronze_transactions`` in Arrow; times in UTC."""


def read(files: list[landing.File], timezone: str = "UTC") -> pa.RecordBatchReader:
    """Read files that have been found readable as rows of :data:`SCHEMA`: all of each, or none of any.

    Args:
        files: the files, as they were when they were found readable.
        timezone: that of the Flink that wrote them, see :func:`fraudlake.bronze.contract.fit`.

    Returns:
        A reader; reading fails where a file is not, or no longer, the one that was found readable.
    """
    return pa.RecordBatchReader.from_batches(SCHEMA, (rows for file in files for rows in _rows(file, timezone)))


def from_files(files: DataFrame, timezone: str = "UTC") -> DataFrame:
    """Read files as :func:`read` does, on Spark's machines.

    Args:
        files: one row a file: ``path, source, size, modified`` as :class:`fraudlake.bronze.landing.File` has them.
        timezone: that of the Flink that wrote them.

    Returns:
        The columns of ``bronze_transactions``.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from read([landing.File(**row) for row in batch.to_pylist()], timezone)

    return files.select("path", "source", "size", "modified").mapInArrow(rows, tables.BRONZE_TRANSACTIONS.columns)


def completed(given: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return rows of :data:`SCHEMA` that are read now, of the columns that are given; ``dt`` must be one of them."""
    dt = given["dt"]
    now = pa.scalar(time.time_ns() // 1000, SCHEMA.field("_ingested_at").type)
    known = given | {"_ingested_at": pa.repeat(now, len(dt)), "date": dt.cast(pa.date32(), safe=False)}
    columns = [known[field.name] if field.name in known else pa.nulls(len(dt), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _rows(file: landing.File, timezone: str) -> Iterator[pa.RecordBatch]:
    folder = file.path.removesuffix(file.source)
    for rows in parquet.batches(file.path, timezone):
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        yield completed(given | {"_source_file": pa.repeat(file.source, rows.num_rows)})
    if landing.seen(file.path, folder) != file:
        raise RuntimeError(f"{file.path} changed while it was read")
