"""Numbers: converts decimals and integers of any width to doubles and 64-bit integers, without overflow."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_POWERS = 22
"""The largest power of ten that is a double itself."""
_DIGITS = 15
"""Every integer of this number of digits is exact as a double."""
_USUAL_SCALES = (2, 4, 8)
"""Amounts of DECIMAL(38, 18) seldom have more digits after the point."""

_DECIMALS = {4: pa.decimal32, 8: pa.decimal64, 16: pa.decimal128, 32: pa.decimal256}
"""The constructors of decimal types, by width in bytes."""


def double(value: float | Decimal) -> float | None:
    """Return a number as a double; None if none is finite, or if an integer is not exactly a double.

    Of a decimal it is the nearest double, as of ``float`` of its text.
    """
    try:
        nearest = float(value)
    except OverflowError:
        return None
    return nearest if math.isfinite(nearest) and (not isinstance(value, int) or nearest == value) else None


def doubles(column: pa.Array) -> pa.Array | None:
    """Turn numbers into doubles as :func:`double` does; NaN and infinities of a float stay. None for any other type."""
    kind = column.type
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_decimal(kind):
        return _nearest(column)
    return _exact(column) if pa.types.is_integer(kind) else None


def integer(value: float | Decimal) -> int | None:
    """Return a number as an integer of 64 bits; None if that would change it."""
    # Check the range first: `int` of a decimal such as 1e999999999 has a billion digits.
    return int(value) if -(2**63) <= value < 2**63 and value == int(value) else None


def integers(column: pa.Array) -> pa.Array | None:
    """Turn numbers into 64-bit integers as :func:`integer` does; None for any other type."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    try:
        return column.cast(pa.int64())  # checks for fractions and the range
    except pa.ArrowInvalid:
        return pa.array([None if value is None else integer(value) for value in column.to_pylist()], pa.int64())


def decimal_texts(column: pa.Array) -> pa.Array:
    """Write decimals as texts that ``float`` and ``Decimal`` read."""
    kind = column.type
    if 0 <= kind.scale <= kind.precision:
        return column.cast(pa.string())
    # Arrow prints decimals of many other scales as an error message.
    unscaled = column.view(_DECIMALS[kind.byte_width](kind.precision, 0)).cast(pa.string())
    return pc.binary_join_element_wise(unscaled, f"E{-kind.scale}", "")


def _exact(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:  # some are beyond 2**53
        whole = pc.fill_null(column, 0).to_numpy()
        nearest = whole.astype(np.float64)
        within = nearest < 2.0 ** (64 if pa.types.is_unsigned_integer(column.type) else 63)
        same = within & (np.where(within, nearest, 0).astype(whole.dtype) == whole)
        return pc.if_else(pc.and_(column.is_valid(), pa.array(same)), pa.array(nearest), pa.scalar(None, pa.float64()))


def _nearest(column: pa.Array) -> pa.Array:
    """Return the doubles nearest to decimals.

    Arrow's own cast is off by one unit in the last place for one decimal in seven. A division of two doubles is
    rounded to the nearest one, which is exact for as many digits as a double has. For more digits, Arrow parses the
    text, which is exact and slow.
    """
    column = _shortened(column)
    scale = column.type.scale
    unscaled = _unscaled(column)
    if unscaled is None or abs(scale) > _EXACT_POWERS:
        nearest = decimal_texts(column).cast(pa.float64())
    else:
        power = pa.scalar(10.0 ** abs(scale))
        nearest = pc.divide(unscaled, power) if scale >= 0 else pc.multiply(unscaled, power)
    return pc.if_else(pc.is_finite(nearest), nearest, pa.scalar(None, pa.float64()))


def _shortened(column: pa.Array) -> pa.Array:
    """Return decimals of many digits with few of them after the point, if all others are zeros."""
    kind = column.type
    for scale in _USUAL_SCALES:
        if scale < kind.scale <= kind.precision and kind.precision > _DIGITS:
            try:
                return column.cast(_DECIMALS[kind.byte_width](kind.precision, scale))
            except pa.ArrowInvalid:  # some have more
                continue
    return column


def _unscaled(column: pa.Array) -> pa.Array | None:
    """Return the unscaled integers of decimals as doubles; None if one of them is not exactly a double."""
    whole = column.view(_DECIMALS[column.type.byte_width](column.type.precision, 0))
    try:
        return whole.cast(pa.int64()).cast(pa.float64())  # both check the range
    except pa.ArrowInvalid:
        return None
