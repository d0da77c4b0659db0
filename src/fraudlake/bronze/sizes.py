"""Sizes: measures the rows of a file before they are decoded, since a small file may expand by any factor.

A page compresses a value of 400 MB to some kilobytes, and a dictionary stores one value for a hundred thousand rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

LARGEST_VALUE = 1 << 20
"""The default of the setting ``max_value_size``, in bytes."""
_BATCH_BYTES = 64 << 20
_LARGE_ROW = 16 << 10
_LARGE_FILE = 256 << 20
"""Bytes of a row on average, and of all rows of a file, that a file may not both exceed."""
_FEW = 8
_DICTIONARY = 1 << 20
"""Bytes of a row, and of a dictionary, as far as which a column is read as a dictionary."""
_COLUMNS = 2_000
"""Columns that a file may have, those within others counted: each costs time in each batch, however small."""
_CELL_BYTES = 16
"""Bytes that a value takes at least, for the bound of rows with many columns."""

Sizes: TypeAlias = NDArray[np.int64]


class TooLargeError(ValueError):
    """A value, or all rows of a file, take too much memory. The message says which, and the limit."""


def with_dictionaries(footer: pq.FileMetaData) -> list[str]:
    """Return the columns that may expand, to be read as dictionaries: with fewer bytes than :data:`_FEW` per row.

    Other columns rarely repeat values, and reading them as dictionaries takes five times as long.
    """
    chunks = (
        footer.row_group(group).column(at) for group in range(footer.num_row_groups) for at in range(footer.num_columns)
    )
    texts = [one for one in chunks if one.physical_type == "BYTE_ARRAY" and one.has_dictionary_page]
    may_grow = (one for one in texts if one.total_uncompressed_size < _FEW * one.num_values + _DICTIONARY)
    return sorted({one.path_in_schema for one in may_grow})


def plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Replace dictionaries by plain arrays, unless the file's schema has them."""
    columns = (_plain(column, field.type) for column, field in zip(batch.columns, schema, strict=True))
    return pa.RecordBatch.from_arrays([*columns], schema=schema)


def _plain(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type == type_:
        return column
    return (column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column).cast(type_)


def rows_at_once(footer: pq.FileMetaData, most: int) -> int:
    """Return how many rows to read at once, so that they take about 64 MB before dictionaries are decoded."""
    groups = (footer.row_group(at) for at in range(footer.num_row_groups))
    largest = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=0.0)
    return max(1, min(most, int(_BATCH_BYTES / max(largest, footer.num_columns * _CELL_BYTES, 1))))


def require_small(footer: pq.FileMetaData, largest_value: int) -> None:
    """Refuse a file with too many columns, or with values that are too large on average, by its footer.

    Raises:
        TooLargeError: there are too many columns, or a value is too large.
    """
    if footer.num_columns > _COLUMNS:
        raise TooLargeError(f"it has {footer.num_columns:,} columns, more than {_COLUMNS:,}")
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(footer.num_columns)):
            size = column.total_uncompressed_size // (group.num_rows + 1)  # a dictionary may have one value more
            if size > largest_value:
                _refuse(f"a value of {column.path_in_schema}", size, largest_value)


class Measure:
    """Measures the rows of a file, batch by batch."""

    def __init__(self, largest_value: int, first: int = 0) -> None:
        """Begin a file whose values may have ``largest_value`` bytes, and whose first row has the number ``first``."""
        self._largest = largest_value
        self._first = first
        self._rows = 0
        self._bytes = 0

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut a batch into parts of about 64 MB, as plain arrays.

        Raises:
            TooLargeError: a value is too large, or the file's rows are.
        """
        sizes = np.zeros(batch.num_rows, np.int64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            of_column = row_sizes(column)
            at = int(of_column.argmax()) if len(of_column) else 0
            if len(of_column) and of_column[at] > self._largest:
                _refuse(
                    f"the value of {name} in row {self._first + self._rows + at}", int(of_column[at]), self._largest
                )
            sizes += np.maximum(of_column, _CELL_BYTES)
        self._rows, self._bytes = self._rows + batch.num_rows, self._bytes + int(sizes.sum())
        if self._bytes > max(_LARGE_FILE, self._rows * _LARGE_ROW):
            raise TooLargeError(
                f"its rows have {self._bytes // self._rows:,} bytes on average, {self._bytes >> 20:,} MiB together: "
                f"more than {_LARGE_ROW:,} bytes and {_LARGE_FILE >> 20} MiB; land it in smaller files"
            )
        number = np.cumsum(sizes) // _BATCH_BYTES
        begins = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(begins):
            yield batch.slice(begin, end - begin)


def _refuse(what: str, size: int, largest: int) -> None:
    raise TooLargeError(f"{what} has {size:,} bytes, more than {largest:,} (the setting max_value_size)")


def row_sizes(array: pa.Array) -> Sizes:
    """Return the bytes of each value of an array when it is plain; 0 for a null text or list."""
    if isinstance(array, pa.ExtensionArray):
        return row_sizes(array.storage)
    if isinstance(array, pa.DictionaryArray):
        indices = array.indices.cast(pa.int64()).fill_null(len(array.dictionary)).to_numpy()
        of_rows: Sizes = np.append(row_sizes(array.dictionary), 0)[indices]
        return of_rows
    if isinstance(array, pa.StructArray):
        fields = [row_sizes(array.field(at)) for at in range(array.type.num_fields)]
        sizes: Sizes = np.sum([np.zeros(len(array), np.int64), *fields], axis=0)
        return sizes
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.MapArray):
        return _in_lists(array)
    if isinstance(array, pa.FixedSizeListArray):
        begin, end = (at * array.type.list_size for at in (array.offset, array.offset + len(array)))
        within: Sizes = row_sizes(array.values)[begin:end].reshape(len(array), -1).sum(axis=1)
        return within
    if pa.types.is_primitive(array.type) or pa.types.is_null(array.type) or pa.types.is_decimal(array.type):
        return np.full(len(array), _CELL_BYTES, np.int64)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):  # Arrow cannot tell their lengths
        return np.full(len(array), array.nbytes // max(len(array), 1), np.int64)
    lengths: Sizes = pc.binary_length(array).fill_null(0).cast(pa.int64()).to_numpy()
    return lengths


def _in_lists(array: Any) -> Sizes:
    offsets = array.offsets.to_numpy().astype(np.int64)
    parts = [array.keys, array.items] if isinstance(array, pa.MapArray) else [array.values]
    before = np.append(0, np.cumsum(np.sum([row_sizes(part) for part in parts], axis=0)))
    sizes: Sizes = before[offsets[1:]] - before[offsets[:-1]]
    return sizes
