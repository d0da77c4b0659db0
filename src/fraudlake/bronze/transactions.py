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


def from_contents(contents: DataFrame, files: list[landing.File], timezone: str = "UTC") -> DataFrame:
    """Parse the bytes of files as :func:`read` reads files: on Spark's machines, which need not see the files.

    Args:
        contents: one row a file: ``source``, its path relative to the landing folder, ``modified`` and ``content``.
        files: the files, as they were when they were found readable.
        timezone: that of the Flink that wrote them.

    Returns:
        The columns of ``bronze_transactions``. Parsing fails where a file cannot be read to its end, or is another one.
    """
    versions = {file.source: (file.size, file.modified) for file in files}

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = (batch[name] for name in ("source", "modified", "content"))
            for source, modified, content in zip(*columns, strict=True):
                buffer = content.as_buffer()
                if versions[source.as_py()] != (buffer.size, modified.as_py()):
                    raise RuntimeError(f"{source} changed while it was read")
                yield from _completed(parquet.batches(buffer, timezone), source.as_py())

    return contents.select("source", "modified", "content").mapInArrow(rows, tables.BRONZE_TRANSACTIONS.columns)


def counted(contents: DataFrame, whole: bool) -> DataFrame:
    """Count the rows of files.

    Args:
        contents: one row a file: ``source`` and ``content``.
        whole: read each file to its end; by default its footer must do.

    Returns:
        ``source, rows, error``: of a file that cannot be read 0 and the reason.
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


def completed(given: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return rows of :data:`SCHEMA` that are read now, of the columns that are given; ``dt`` must be one of them."""
    dt = given["dt"]
    now = pa.scalar(time.time_ns() // 1000, SCHEMA.field("_ingested_at").type)
    known = given | {"_ingested_at": pa.repeat(now, len(dt)), "date": dt.cast(pa.date32(), safe=False)}
    columns = [known[field.name] if field.name in known else pa.nulls(len(dt), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _rows(file: landing.File, timezone: str) -> Iterator[pa.RecordBatch]:
    folder = file.path.removesuffix(file.source)
    yield from _completed(parquet.batches(file.path, timezone), file.source)
    if landing.seen(file.path, folder) != file:
        raise RuntimeError(f"{file.path} changed while it was read")


def _completed(batches: Iterator[pa.RecordBatch], source: str) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        given = dict(zip(rows.schema.names, rows.columns, strict=True))
        yield completed(given | {"_source_file": pa.repeat(source, rows.num_rows)})
