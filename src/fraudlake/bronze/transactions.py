"""Bronze transactions: landed parquet files become rows of bronze, each with its file and its row number there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake.bronze import parquet
from fraudlake.bronze.contract import FLINKS, Contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def of_file(
    content: parquet.Content, source: str, timezone: str = "UTC", contract: Contract = FLINKS
) -> Iterator[pa.RecordBatch]:
    """Read a file as rows of ``bronze_transactions``.

    Args:
        content: the file, as its path or its bytes.
        source: its path relative to the landing folder.
        timezone: the time zone of the Flink that wrote it, see :func:`fraudlake.bronze.contract.fit`.
        contract: the fields that become columns.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not parquet, or damaged.
    """
    for rows in parquet.batches(content, timezone, contract):
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        yield bronze_batch(columns | {"_source_file": pa.repeat(source, rows.num_rows)}, contract)


def from_contents(
    contents: DataFrame,
    versions: dict[str, tuple[int | None, int | None]],
    timezone: str = "UTC",
    contract: Contract = FLINKS,
) -> DataFrame:
    """Parse the bytes of files in Spark's tasks, as :func:`of_file` parses one: the machines need not see the files.

    Args:
        contents: one row a file: ``source``, its path relative to the landing folder, ``modified`` and ``content``.
        versions: size (bytes) and ``modified`` of each file when it was checked to be readable, by ``source``.
        timezone: the time zone of the Flink that wrote them.
        contract: the fields that become columns.

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
                yield from of_file(buffer, source.as_py(), timezone, contract)

    return contents.select("source", "modified", "content").mapInArrow(rows, contract.table.columns)


def row_counts(contents: DataFrame, count: parquet.Count) -> DataFrame:
    """Count the rows of files.

    Args:
        contents: one row a file: ``source`` and ``content``.
        count: counts the rows of one file.

    Returns:
        ``source, rows, error``; ``rows`` is 0 and ``error`` the reason where a file cannot be read.
    """

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


def bronze_batch(columns: dict[str, pa.Array], contract: Contract) -> pa.RecordBatch:
    """Complete rows of ``bronze_transactions``: ``date`` from ``dt``, ``_ingested_at`` now, all others null.

    Args:
        columns: some of the columns, by name; ``dt`` must be one of them.
        contract: the contract that they were read by.
    """
    dt, schema = columns["dt"], contract.table.schema
    now = pa.scalar(time.time_ns() // 1000, schema.field("_ingested_at").type)
    known = columns | {"_ingested_at": pa.repeat(now, len(dt)), "date": dt.cast(pa.date32(), safe=False)}
    arrays = [known[field.name] if field.name in known else pa.nulls(len(dt), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
