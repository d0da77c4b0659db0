"""Bronze transactions: landed parquet files become rows of bronze, each with its file and its row number there."""

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
    """Read files as rows of :data:`SCHEMA`: all rows of all files, or none.

    Args:
        files: the files, as they were when they were checked to be readable.
        timezone: the time zone of the Flink that wrote them, see :func:`fraudlake.bronze.contract.fit`.

    Returns:
        A reader; it fails where a file cannot be read or has changed since.
    """
    return pa.RecordBatchReader.from_batches(SCHEMA, (rows for file in files for rows in _rows(file, timezone)))


def from_contents(contents: DataFrame, files: list[landing.File], timezone: str = "UTC") -> DataFrame:
    """Parse the bytes of files in Spark's tasks, as :func:`read` reads files: the machines need not see the files.

    Args:
        contents: one row a file: ``source``, its path relative to the landing folder, ``modified`` and ``content``.
        files: the files, as they were when they were checked to be readable.
        timezone: the time zone of the Flink that wrote them.

    Returns:
        The columns of ``bronze_transactions``. Parsing fails where a file cannot be read or has changed since.
    """
    versions = {file.source: (file.size, file.modified) for file in files}

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = (batch[name] for name in ("source", "modified", "content"))
            for source, modified, content in zip(*columns, strict=True):
                buffer = content.as_buffer()
                if versions[source.as_py()] != (buffer.size, modified.as_py()):
                    raise RuntimeError(f"{source} changed while it was read")
                yield from _with_source(parquet.batches(buffer, timezone), source.as_py())

    return contents.select("source", "modified", "content").mapInArrow(rows, tables.BRONZE_TRANSACTIONS.columns)


def row_counts(contents: DataFrame, whole: bool) -> DataFrame:
    """Count the rows of files.

    Args:
        contents: one row a file: ``source`` and ``content``.
        whole: read each file to its end; by default only its footer is read.

    Returns:
        ``source, rows, error``; ``rows`` is 0 and ``error`` the reason where a file cannot be read.
    """
    count = parquet.inspect if whole else parquet.glance

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [count(content.as_buffer()) for content in batch["content"]]
            yield pa.RecordBatch.from_arrays(
                [
                    batch["source"],
                    pa.array([number for number, _ in counts], pa.int64()),
                    pa.array([error for _, error in counts], pa.string()),
                ],
                ["source", "rows", "error"],
            )

    return contents.select("source", "content").mapInArrow(rows, "source STRING, rows BIGINT, error STRING")


def bronze_batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Complete columns to :data:`SCHEMA`: ``date`` from ``dt``, ``_ingested_at`` now, all others null.

    Args:
        columns: some of the columns, by name; ``dt`` must be one of them.
    """
    dt = columns["dt"]
    now = pa.scalar(time.time_ns() // 1000, SCHEMA.field("_ingested_at").type)
    known = columns | {"_ingested_at": pa.repeat(now, len(dt)), "date": dt.cast(pa.date32(), safe=False)}
    arrays = [known[field.name] if field.name in known else pa.nulls(len(dt), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _rows(file: landing.File, timezone: str) -> Iterator[pa.RecordBatch]:
    folder = file.path.removesuffix(file.source)
    yield from _with_source(parquet.batches(file.path, timezone), file.source)
    if landing.current_file(file.path, folder) != file:
        raise RuntimeError(f"{file.path} changed while it was read")


def _with_source(batches: Iterator[pa.RecordBatch], source: str) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        yield bronze_batch(columns | {"_source_file": pa.repeat(source, rows.num_rows)})
