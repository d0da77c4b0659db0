"""Arrays: converts Arrow columns to NumPy arrays with their nulls, encodes keys as numbers, and rows as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

_SPARK_SEED = 42


class Vector(NamedTuple):
    """A column of values; a value is ignored if its ``null`` is true (None: no value is null)."""

    values: NDArray[Any]
    null: NDArray[np.bool_] | None = None

    def slice(self, start: int, stop: int) -> Vector:
        """Return some rows."""
        return Vector(self.values[start:stop], None if self.null is None else self.null[start:stop])

    def to_list(self) -> list[Any]:
        """Return Python values, None for NULL."""
        values: list[Any] = self.values.tolist()
        if self.null is not None:
            for number in np.flatnonzero(self.null).tolist():
                values[number] = None
        return values


def vector_of(column: pa.ChunkedArray) -> Vector:
    """Return a column as an array; timestamps become whole microseconds."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us")).cast(pa.int64())
    if null is not None:
        zero: Any = "" if pa.types.is_string(array.type) or pa.types.is_large_string(array.type) else 0
        array = array.fill_null(False if pa.types.is_boolean(array.type) else zero)
    return Vector(array.to_numpy(zero_copy_only=False), null)


def keyed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normalize a column so that equal keys have equal bits: zeros of both signs are one key, and so are all NaN."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), float("nan"), pc.add(column, 0.0))


def codes_of(table: pa.Table, columns: Sequence[str]) -> NDArray[np.int64]:
    """Return a number for each combination of values."""
    codes = np.zeros(len(table), np.int64)
    for name in columns:
        encoded = keyed(table[name]).combine_chunks().dictionary_encode()
        indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        if codes.any():
            indices = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)[1]
        codes = indices
    return codes


def hashes_of(column: pa.ChunkedArray) -> pa.Array:
    """Return 64-bit hashes of a column's values, those of Spark's ``xxhash64``; null for null."""
    encoded = keyed(column).combine_chunks().dictionary_encode()
    pack = _pack(encoded.dictionary.type)
    unsigned = [xxhash.xxh64_intdigest(pack(value), _SPARK_SEED) for value in encoded.dictionary.to_pylist()]
    return pa.array(np.array(unsigned, np.uint64).view(np.int64)).take(encoded.indices)


def _pack(type_: pa.DataType) -> Callable[[Any], bytes]:
    """Return what Spark hashes of a value."""
    if pa.types.is_boolean(type_):
        return struct.Struct("<i").pack
    if pa.types.is_floating(type_):
        return struct.Struct("<d").pack
    if pa.types.is_integer(type_):
        return struct.Struct("<q").pack
    return str.encode


def to_bytes(rows: pa.RecordBatch | pa.Table, is_compressed: bool = False) -> bytes:
    """Serialize rows as an Arrow IPC stream; compressed, numbers take a third of the bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if is_compressed else None)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())
