"""Bronze transactions: reads landed parquet files into rows of bronze, each with its file and row number."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake.bronze import parquet
from fraudlake.bronze.contract import FLINKS, Contract

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


PIECE_BYTES = 16 << 20
"""Serverless compute gives a Python process 1 GB, and Spark sends it rows of 64 MB together."""


def read_file(
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


def in_pieces(files: DataFrame) -> DataFrame:
    """Cut files into pieces of at most :data:`PIECE_BYTES`, so that no Python process gets many bytes at once.

    Args:
        files: one row a file: ``source``, its path relative to the landing folder, ``modified`` and ``content``.

    Returns:
        One row per piece, the pieces of a file in order: ``source, modified, length, content``; ``length`` is
        that of the file, in bytes.
    """
    last = F.floor((F.greatest(F.length("content"), F.lit(1)) - 1) / PIECE_BYTES).cast("int")
    pieces = F.transform(F.sequence(F.lit(0), last), lambda number: _piece(number))
    return files.select("source", "modified", F.length("content").alias("length"), F.explode(pieces).alias("content"))


def _piece(number: Column) -> Column:
    return F.substring("content", number * PIECE_BYTES + 1, F.lit(PIECE_BYTES))


def whole_files(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, int, parquet.Content]]:
    """Join the pieces of :func:`in_pieces`: ``source, modified, length`` of each file, and the file.

    A file of several pieces is on this machine's disk until the next file is requested.
    """
    columns = ("source", "modified", "length", "content")
    rows = (row for batch in batches for row in zip(*(batch[name] for name in columns), strict=True))
    for source, modified, length, content in rows:
        key = (source.as_py(), modified.as_py())
        size = length.as_py()
        piece = content.as_buffer()
        if piece.size == size:
            yield *key, size, piece
            continue
        with tempfile.NamedTemporaryFile(prefix="fraudlake-") as file:
            file.write(piece)
            while file.tell() < size:
                file.write(next(rows)[3].as_buffer())
            file.flush()
            yield *key, size, file.name


def from_contents(
    contents: DataFrame,
    versions: dict[str, tuple[int | None, int | None]],
    timezone: str = "UTC",
    contract: Contract = FLINKS,
) -> DataFrame:
    """Parse the bytes of files in Spark's tasks, as :func:`read_file` does; the machines need no access to the files.

    Args:
        contents: what :func:`in_pieces` returns.
        versions: size (bytes) and ``modified`` of each file when it was checked to be readable, by ``source``.
        timezone: the time zone of the Flink that wrote them.
        contract: the fields that become columns.

    Returns:
        The columns of ``bronze_transactions``. Parsing fails if a file cannot be read or has changed since.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source, modified, size, content in whole_files(batches):
            if versions[source] != (size, modified):
                raise RuntimeError(f"{source} changed while it was read")
            yield from read_file(content, source, timezone, contract)

    return contents.mapInArrow(rows, contract.table.columns)


def row_counts(contents: DataFrame, count: parquet.Count, with_digests: bool = False) -> DataFrame:
    """Count the rows of files.

    Args:
        contents: what :func:`in_pieces` returns.
        count: counts the rows of one file.
        with_digests: whether to compute the hashes of files with rows.

    Returns:
        ``source, rows, error, digest``; if a file cannot be read, ``rows`` is 0 and ``error`` the reason.
    """

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        text = pa.string()
        schema = pa.schema([("source", text), ("rows", pa.int64()), ("error", text), ("digest", text)])
        for source, _, _, content in whole_files(batches):
            number, error = count(content)
            digest = parquet.digest(content) if with_digests and number else None
            row = {"source": source, "rows": number, "error": error, "digest": digest}
            yield pa.RecordBatch.from_pylist([row], schema)

    return contents.mapInArrow(rows, "source STRING, rows BIGINT, error STRING, digest STRING")


def bronze_batch(columns: dict[str, pa.Array], contract: Contract) -> pa.RecordBatch:
    """Complete rows of ``bronze_transactions``: ``date`` from ``dt``, ``_ingested_at`` now, all other columns null.

    Args:
        columns: some of the columns, by name; ``dt`` is required.
        contract: the contract with which they were read.
    """
    dt = columns["dt"]
    schema = contract.table.schema
    now = pa.scalar(time.time_ns() // 1000, schema.field("_ingested_at").type)
    values = columns | {"_ingested_at": pa.repeat(now, len(dt)), "date": dt.cast(pa.date32(), safe=False)}
    arrays = [values[field.name] if field.name in values else pa.nulls(len(dt), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
