"""Wide integers: converts 128-bit columns, which Polars writes and Arrow cannot read, to 64-bit integers or digits.

In parquet they are 16 bytes, little-endian; only the Arrow schema in the footer says that they are integers.
"""

from __future__ import annotations

import base64
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_KEY = b"ARROW:schema"
_IGNORED = b"arrow-schema"
_INT = 2  # in Arrow's union of types


def footer_without_arrow_schema(content: str | pa.Buffer) -> pq.FileMetaData:
    """Read a footer, with the Arrow schema in it under a name that Arrow ignores."""
    with pa.OSFile(content) if isinstance(content, str) else pa.BufferReader(content) as file:
        file.seek(file.size() - 8)
        end = file.read(8)
        file.seek(file.size() - 8 - int.from_bytes(end[:4], "little"))
        footer = file.read().replace(_KEY, _IGNORED)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer))


def narrowed(batch: pa.RecordBatch, footer: pq.FileMetaData) -> pa.RecordBatch:
    """Turn 128-bit integers into 64-bit integers, if all values of a column fit, otherwise into digits.

    Args:
        batch: rows of a file.
        footer: the file's footer; only one from :func:`footer_without_arrow_schema` may have such integers.
    """
    wide = _wide(base64.b64decode((footer.metadata or {}).get(_IGNORED, b"")))
    for at, name in enumerate(batch.schema.names):
        if name in wide:
            batch = batch.set_column(at, name, _narrowed(batch.column(at), is_signed=wide[name]))
    return batch


def _narrowed(column: pa.Array, *, is_signed: bool) -> pa.Array:
    validity, data = column.buffers()
    halves = np.frombuffer(data, np.int64).reshape(-1, 2)
    upper = halves[:, 1] >> 63 if is_signed else np.zeros_like(halves[:, 1])
    words = pa.py_buffer(np.column_stack([halves, upper, upper]))
    numbers = pa.Array.from_buffers(pa.decimal256(39, 0), len(column), [validity, words], offset=column.offset)
    for kind in (pa.int64(), pa.uint64()):
        try:
            return numbers.cast(kind)
        except pa.ArrowInvalid:  # out of range
            continue
    return numbers.cast(pa.string())


def _wide(message: bytes) -> dict[str, bool]:
    """Return the columns of 128-bit integers in a message with a schema, and which of them are signed.

    The message is a flatbuffer, by Arrow's ``Message.fbs`` and ``Schema.fbs``.
    """
    if not message:
        return {}
    buffer = message[8:]  # after the mark of a message and its length
    schema = _target(buffer, _field(buffer, _target(buffer, 0), 2))
    fields = _target(buffer, _field(buffer, schema, 1))
    (count,) = struct.unpack_from("<I", buffer, fields)
    wide = {}
    for number in range(count):
        field = _target(buffer, fields + 4 + 4 * number)
        if buffer[_field(buffer, field, 2)] == _INT:
            integer = _target(buffer, _field(buffer, field, 3))
            if struct.unpack_from("<i", buffer, _field(buffer, integer, 0)) == (128,):
                wide[_text(buffer, _target(buffer, _field(buffer, field, 0)))] = _flag(buffer, integer, 1)
    return wide


def _flag(buffer: bytes, table: int, number: int) -> bool:
    """Return a boolean field; a false one may be omitted, also from the end of the list of fields."""
    at = _field(buffer, table, number)
    return at != table and buffer[at] != 0


def _field(buffer: bytes, table: int, number: int) -> int:
    """Return the position of a field in a table by its fields' offsets; that of the table if the field is missing."""
    (offset,) = struct.unpack_from("<i", buffer, table)
    fields = table - offset
    (size,) = struct.unpack_from("<H", buffer, fields)
    entry = 4 + 2 * number
    return table + int(struct.unpack_from("<H", buffer, fields + entry)[0]) if entry < size else table


def _target(buffer: bytes, at: int) -> int:
    """Return the position to which the offset at a position points."""
    (offset,) = struct.unpack_from("<I", buffer, at)
    return at + int(offset)


def _text(buffer: bytes, at: int) -> str:
    (length,) = struct.unpack_from("<I", buffer, at)
    return buffer[at + 4 : at + 4 + length].decode()
