"""Plain arrays: decodes Arrow's dictionaries, runs, views and extension types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def plain(column: pa.Array) -> pa.Array:
    """Return the values of a column without dictionary, run-end or view encoding, and without an extension type.

    A UUID becomes its text, Arrow's ``bool8`` a boolean, and any other extension type its storage. Texts are not
    checked to be UTF-8. Values inside of lists, structs, maps and unions stay as they are.
    """
    kind = column.type
    if isinstance(kind, pa.UuidType):
        return _uuids(column.storage)
    if isinstance(kind, pa.Bool8Type):
        return pc.not_equal(column.storage, pa.scalar(0, pa.int8()))
    if isinstance(kind, pa.BaseExtensionType):
        return plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary).take(column.indices)
    if pa.types.is_run_end_encoded(kind):
        ends = np.asarray(column.run_ends).astype(np.int64) - column.offset
        return plain(column.values).take(pa.array(np.searchsorted(ends, np.arange(len(column)), side="right")))
    if pa.types.is_string_view(kind):
        return column.cast(pa.binary()).view(pa.string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    return column


def _uuids(column: pa.Array) -> pa.Array:
    """Write UUIDs of 16 bytes as RFC 9562 does: 32 digits in lower case, with four hyphens."""
    raw = pc.fill_null(column, bytes(16)).cast(pa.binary())
    digits = np.frombuffer(b"".join(raw.to_pylist()).hex().encode(), "S1").reshape(-1, 32)
    text = np.insert(digits, [8, 12, 16, 20], b"-", axis=1).tobytes().decode()
    texts = pa.array([text[at : at + 36] for at in range(0, len(text), 36)], pa.string())
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
