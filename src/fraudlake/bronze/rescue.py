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
    """Encode each row of the columns as a JSON object, by column name; null in all ``rows`` without a column.

    Numbers, booleans, strings, lists, structs and maps (as lists of pairs) are encoded as JSON's own types; times,
    decimals, NaN and infinities as strings; binary values as base64.
    """
    if not columns:
        return pa.nulls(rows, pa.string())
    parts: list[Any] = []
    for name, column in columns.items():
        # Arrow joins whole columns: with a Python object a row, a file with one extra column takes 20 times as long.
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
        # Arrow writes years beyond 9999 and before 0 wrongly.
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
    except pa.ArrowInvalid:  # not UTF-8, which parquet does not check
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
    """Turn values that JSON cannot express into text, at any depth."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
