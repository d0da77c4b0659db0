"""Rescued data: encodes values that do not fit the landing contract as one JSON object per row."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import numbers
from fraudlake.bronze.plain import plain
from fraudlake.times import calendar

_MUST_BE_ESCAPED = r'[\x00-\x1f"\\]'


def as_json(columns: dict[str, pa.Array], rows: int) -> pa.Array:
    """Encode each row of the columns as a JSON object, by column name; null in all ``rows`` without a column.

    Numbers, booleans, strings, lists, structs and maps (as lists of pairs) are encoded as JSON's own types; times,
    decimals, NaN and infinities as strings; binary values as base64.
    """
    return _objects(list(columns), list(columns.values())) if columns else pa.nulls(rows, pa.string())


def _objects(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """Encode rows as JSON objects."""
    # Arrow joins whole columns; with a Python object per row, a file with one extra column takes 20 times as long.
    named = [
        pc.binary_join_element_wise(f"{json.dumps(name)}: ", pc.fill_null(_encoded(column), "null"), "")
        for name, column in zip(names, columns, strict=True)
    ]
    return _joined("{", ", ", "}", named)


def _encoded(column: pa.Array) -> pa.Array:
    """Encode values as JSON text; null stays null."""
    column = plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_float16(kind):
        return _encoded(column.cast(pa.float32()))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        text = column.cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    if pa.types.is_timestamp(kind):
        return _encoded_times(column)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return _quoted(numbers.decimal_texts(column))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _encoded_text(column.cast(pa.binary()))
    if pa.types.is_struct(kind):
        fields = [kind.field(at).name for at in range(kind.num_fields)]
        return _where_valid(column, _objects(fields, column.flatten()) if fields else pa.repeat("{}", len(column)))
    if pa.types.is_map(kind):
        pairs = [_encoded(_items(column, child)) for child in (column.keys, column.items)]
        return _encoded_lists(column, column.offsets, _joined("[", ", ", "]", pairs))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _encoded_lists(column, column.offsets, _encoded(_items(column, column.values)))
    if pa.types.is_fixed_size_list(kind):
        ends = pc.cumulative_sum(pc.if_else(column.is_valid(), kind.list_size, 0))
        return _encoded_lists(column, pa.concat_arrays([pa.array([0]), ends]), _encoded(column.flatten()))
    return pa.array([_encoded_value(value) for value in column], pa.string())


def _encoded_times(column: pa.Array) -> pa.Array:
    try:
        text = _quoted(column.cast(pa.string()))
    except pa.ArrowInvalid:  # no zone of that name is known here
        return _encoded(column.cast(pa.timestamp(column.type.unit, "UTC")))
    outside = calendar.outside(column)
    # Arrow writes years beyond 9999 and before 0 wrongly.
    return text if outside is None else pc.if_else(outside, column.cast(pa.int64()).cast(pa.string()), text)


def _encoded_text(raw: pa.Array) -> pa.Array:
    try:
        column = raw.cast(pa.string())  # checks the UTF-8, which parquet's readers do not
    except pa.ArrowInvalid:
        return pa.array([_encoded_bytes(value) for value in raw.to_pylist()], pa.string())
    if not pc.any(pc.match_substring_regex(column, _MUST_BE_ESCAPED)).as_py():
        return _quoted(column)
    distinct = column.dictionary_encode()
    texts = pa.array([json.dumps(value, ensure_ascii=False) for value in distinct.dictionary.to_pylist()], pa.string())
    return texts.take(distinct.indices)


def _items(column: pa.Array, child: pa.Array) -> pa.Array:
    """Return the part of ``child`` to which the lists of a column refer; the column may be a slice."""
    first = column.offsets[0].as_py()
    last = column.offsets[-1].as_py()
    return child.slice(first, last - first)


def _encoded_lists(column: pa.Array, offsets: pa.Array, items: pa.Array) -> pa.Array:
    """Encode lists as JSON arrays, given the offset of each and all their encoded items."""
    begins = pc.subtract(offsets, offsets[0]).cast(pa.int32())
    lists = pa.ListArray.from_arrays(begins, pc.fill_null(items, "null"))
    return _where_valid(column, _joined("[", "", "]", [pc.binary_join(lists, ", ")]))


def _joined(begin: str, separator: str, end: str, texts: list[pa.Array]) -> pa.Array:
    joined = pc.binary_join_element_wise(*(pc.fill_null(text, "null") for text in texts), separator)
    return pc.binary_join_element_wise(begin, joined, end, "")


def _where_valid(column: pa.Array, text: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), text, pa.scalar(None, pa.string()))


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _encoded_value(scalar: pa.Scalar) -> str | None:
    try:
        value = scalar.as_py()
    except OverflowError:  # a duration that Python cannot express
        value = scalar.cast(pa.int64()).as_py()
    return None if value is None else json.dumps(value, default=_text, ensure_ascii=False)


def _encoded_bytes(value: bytes | None) -> str | None:
    try:
        return None if value is None else json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f'"{_text(value)}"'


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
