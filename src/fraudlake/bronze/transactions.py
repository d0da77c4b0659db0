"""Bronze transactions: landed parquet files become rows of bronze, each with its file and its row number there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake import tables
from fraudlake.bronze import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = tables.BRONZE_TRANSACTIONS.schema
"""The columns of ``bronze_transactions`` in Arrow; times in UTC."""


def of_file(content: parquet.Content, source: str, timezone: str = "UTC") -> Iterator[pa.RecordBatch]:
    """Read a file as rows of :data:`SCHEMA`.

    Args:
        content: the file, as its path or its bytes.
        source: its path relative to the landing folder.
        timezone: the time zone of the Flink that wrote it, see :func:`fraudlake.bronze.contract.fit`.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not parquet, or damaged.
    """
    for rows in parquet.batches(content, timezone):
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        yield bronze_batch(columns | {"_source_file": pa.repeat(source, rows.num_rows)})


def from_contents(
    contents: DataFrame, versions: dict[str, tuple[int | None, int | None]], timezone: str = "UTC"
) -> DataFrame:
    """Parse the bytes of files in Spark's tasks, as :func:`of_file` parses one: the machines need not see the files.

    Args:
        contents: one row a file: ``source``, its path relative to the landing folder, ``modified`` and ``content``.
        versions: size (bytes) and ``modified`` of each file when it was checked to be readable, by ``source``.
        timezone: the time zone of the Flink that wrote them.

    Returns:
        The columns of ``bronze_transactions``. Parsing fails where a file cannot be read or has changed since.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = (batch[name] for name in ("source", "modified", "content"))
            for source, modified, content in zip(*columns, strict=True):
                buffer = content.as_buffer()
                if versions[source.as_py()] != (buffer.size, modified.as_py()):
                    raise RuntimeError(f"{source} changed while it was read")
                yield from of_file(buffer, source.as_py(), timezone)

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
