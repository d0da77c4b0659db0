"""Parquet: reads a file that Flink wrote as Arrow batches in the columns of the landing contract."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fraudlake.bronze import julian, sizes, wide_integers
from fraudlake.bronze.contract import FLINKS, Contract, fit
from fraudlake.errors import first_line

BATCH_ROWS = 100_000
BUFFER_BYTES = 1 << 20
_OWN = {"fraudlake": "simulate"}
_OTHER_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_FIXED = "fixed_size_list", "fixed_shape_tensor"
"""Types of Arrow whose nulls it cannot read from parquet (seen in 25); as lists of any size, it can."""

Content: TypeAlias = str | pa.Buffer
"""A file, as its path or its bytes."""
Count: TypeAlias = Callable[[Content], tuple[int, str | None]]
"""Counts the rows of a file: :func:`glance`, or :func:`inspect`."""


def inspect(content: Content, timezone: str = "UTC", contract: Contract = FLINKS) -> tuple[int, str | None]:
    """Read a file as :func:`batches` does; return its number of rows or, if that fails, 0 and the reason.

    The footer alone does not suffice: it may be intact although a page is damaged, or a value is unreadable.
    """
    rows = 0
    try:
        for batch in batches(content, timezone, contract):
            batch.validate(full=True)
            rows += batch.num_rows
    except Exception as error:  # any error concerns this file alone
        return 0, _reason(content, error)
    return rows, None


def glance(content: Content) -> tuple[int, str | None]:
    """Read only a file's footer; return the number of rows in it or, if that fails, 0 and the reason."""
    try:
        with _open(content) as file:
            return int(file.metadata.num_rows), None
    except Exception as error:  # as above
        return 0, _reason(content, error)


def digest(content: Content) -> str | None:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits; None if the file cannot be read."""
    if isinstance(content, pa.Buffer):
        return hashlib.sha256(content).hexdigest()
    try:
        with open(content, "rb") as file:  # noqa: PTH123 - 20 times as fast as Path
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def batches(content: Content, timezone: str = "UTC", contract: Contract = FLINKS) -> Iterator[pa.RecordBatch]:
    """Read a file as batches: what :func:`fraudlake.bronze.contract.fit` returns, and ``_source_row``.

    Args:
        content: the file.
        timezone: the time zone of the Flink that wrote it, see :func:`fraudlake.bronze.contract.fit`.
        contract: the fields that become columns.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not parquet, or damaged.
    """
    row = 0
    for batch in measured(content, contract.largest_value):
        rows = pa.array(np.arange(row, row + batch.num_rows))
        row += batch.num_rows
        yield pa.RecordBatch.from_pydict({**fit(batch, timezone, contract), "_source_row": rows})


def measured(content: Content, largest_value: int, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Read a file as batches of its own columns, about 64 MB each.

    Args:
        content: the file.
        largest_value: the most bytes of a value.
        first: the number of the first row in messages.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not parquet, or damaged.
        TooLargeError: a value, or the rows together, would take too much memory.
    """
    with _open(content) as file:
        sizes.require_small(file.metadata, largest_value)
        for batch in _whole(content, file, sizes.Measure(largest_value, first)):
            yield _repaired(batch, file.metadata)


def write_own(rows: pa.Table, path: Path) -> None:
    """Write a file as ``simulate`` lands it: like Flink's files, with the metadata that :func:`is_own` reads."""
    layout = {"version": "1.0", "compression": "snappy", "store_schema": False, "use_dictionary": ["accountId"]}
    with pq.ParquetWriter(path, rows.schema, **layout) as file:
        file.write_table(rows)
        file.add_key_value_metadata(_OWN)


def is_own(path: str) -> bool:
    """Return whether a file was written by ``simulate``, and not by Flink; false if it cannot be read."""
    try:
        with _open(path) as file:
            metadata = file.metadata.metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return all(metadata.get(name.encode()) == value.encode() for name, value in _OWN.items())


def _repaired(batch: pa.RecordBatch, footer: pq.FileMetaData) -> pa.RecordBatch:
    """Correct the values of a batch that Arrow reads differently from the file's writer."""
    for leaf in map(footer.schema.column, range(footer.num_columns)):
        at = batch.schema.get_field_index(leaf.path)
        # Arrow before version 21 takes UUIDs for bytes.
        if leaf.logical_type.type == "UUID" and at >= 0 and not isinstance(batch.schema.types[at], pa.UuidType):
            batch = batch.set_column(at, leaf.path, pa.ExtensionArray.from_storage(pa.uuid(), batch.column(at)))
    return julian.corrected(wide_integers.narrowed(batch, footer), footer)


def _whole(content: Content, file: pq.ParquetFile, measure: sizes.Measure) -> Iterator[pa.RecordBatch]:
    rows = 0
    with _opened(content, file.metadata, sizes.with_dictionaries(file.metadata)) as compact:
        for batch in _by_groups(compact, sizes.rows_at_once(file.metadata, BATCH_ROWS)):
            rows += batch.num_rows
            for part in measure.parts(batch):
                yield sizes.plain(part, file.schema_arrow)
    if rows != file.metadata.num_rows:
        raise pa.ArrowInvalid(f"its footer says {file.metadata.num_rows:,} rows, but it has {rows:,}")


def _by_groups(file: pq.ParquetFile, size: int) -> Iterator[pa.RecordBatch]:
    # Arrow cannot join the dictionaries of row groups within structs, lists and maps (seen in 25, apache/arrow#21526).
    for group in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=size, row_groups=[group])


def other_kind(mode: int) -> str | None:
    """Return the kind of file that a mode (``st_mode``) states, such as a named pipe; None for a regular file."""
    return None if stat.S_ISREG(mode) else _OTHER_KINDS.get(stat.S_IFMT(mode), "something else")


def _open(content: Content) -> pq.ParquetFile:
    if isinstance(content, str):
        kind = other_kind(os.stat(content).st_mode)  # noqa: PTH116 - 20 times as fast as Path
        if kind is not None:  # opening a named pipe would wait for its other end, and no signal could end that
            raise _NoFileError(f"it is {kind}, not a file")
    try:
        file = _opened(content, None)
        types = str(file.schema_arrow)
        if not any(kind in types for kind in _FIXED):
            return file
    except pa.ArrowNotImplementedError:  # the footer carries an Arrow schema with a type that Arrow cannot read
        pass
    return _opened(content, wide_integers.footer_without_arrow_schema(content))


def _opened(content: Content, footer: pq.FileMetaData | None, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    file = content if isinstance(content, str) else pa.BufferReader(content)
    # If the writer left page checksums, they reveal a flipped bit that decodes to another value.
    # Without `page_by_page`, Arrow keeps the bytes of all columns that it has read in memory (seen in 25).
    page_by_page = {"pre_buffer": False, "buffer_size": BUFFER_BYTES}
    checks = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
    return pq.ParquetFile(file, metadata=footer, read_dictionary=[*dictionaries], **checks, **page_by_page)


class _NoFileError(OSError):
    """A path is not a regular file. The message says what it is."""


def _reason(content: Content, error: Exception) -> str:
    if isinstance(error, _NoFileError | sizes.TooLargeError):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    if isinstance(error, PermissionError):
        return "the file may not be read: permission denied"
    if isinstance(content, str) and Path(content).is_file() and Path(content).stat().st_size == 0:
        return "the file is empty (0 bytes)"
    return f"not readable as parquet: {first_line(error, 400)}"
