"""Rescued data: columns that do not fit the landing contract become one JSON object a row."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import calendar

_MUST_BE_ESCAPED = r'[\x00-\x1f"\\]'


def as_json(columns: dict[str, pa.Array], rows: int) -> pa.Array:
    """Join columns of ``rows`` values into JSON objects by name; null in every row where there is no column.

    Numbers, booleans, strings, lists, structs and maps (as lists of pairs) are JSON's own; times and decimals are
    strings, binary values base64, NaN and infinities strings, since JSON has no word for them.
    """
    if not columns:
        return pa.nulls(rows, pa.string())
    parts: list[Any] = []
    for name, column in columns.items():
        # Concatenated as arrays: a Python object a row would make a file with one extra column 20 times as slow.
        parts += [("{" if not parts else ", ") + f"{json.dumps(name)}: ", pc.fill_null(_encoded(column), "null")]
    return pc.binary_join_element_wise(*parts, "}", "")


def _encoded(column: pa.Array) -> pa.Array:
    """Encode values as JSON text; null stays null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _encoded(column.dictionary_decode())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        text = column.cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    if pa.types.is_timestamp(kind):
        text, outside = _quoted(column.cast(pa.string())), calendar.outside(column)
        # Arrow writes years of five digits, and those before 0, wrongly.
        return text if outside is None else pc.if_else(outside, column.cast(pa.int64()).cast(pa.string()), text)
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _encoded_text(column.cast(pa.string()))
    return pa.array([None if value is None else _dumps(value) for value in column.to_pylist()], pa.string())


def _encoded_text(column: pa.Array) -> pa.Array:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:  # bytes that are no UTF-8, which parquet does not check
        return _encoded(column.cast(pa.binary()))
    if not pc.any(pc.match_substring_regex(column, _MUST_BE_ESCAPED)).as_py():
        return _quoted(column)
    distinct = column.dictionary_encode()
    texts = pa.array([json.dumps(value, ensure_ascii=False) for value in distinct.dictionary.to_pylist()], pa.string())
    return texts.take(distinct.indices)


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _dumps(value: object) -> str:
    return json.dumps(_plain(value), default=str, ensure_ascii=False)


def _plain(value: object) -> object:
    """Turn what JSON has no word for into text, at any depth."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
