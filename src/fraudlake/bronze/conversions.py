"""Conversions: converts values to column types, by the same rules for files and messages.

A function with a singular name takes a JSON value, in which a number with a fraction is a ``Decimal``; one with a
plural name takes a plain Arrow array of any type. A value that cannot be converted becomes null: it does not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any, TypeGuard

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import numbers
from fraudlake.times import calendar

# Every form of Flink (`2026-03-07 00:00:01.18`, also with `T` or `Z`), and other dates with a time of ISO-8601.
TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?", re.ASCII
)
"""A time as a text."""


def instant(value: object, zone: tzinfo = UTC) -> int | None:
    """Read a time in microseconds since 1970: a number is in milliseconds, a text without a zone is of ``zone``.

    Fractions of a microsecond are cut off. A time outside the years 1 to 9999 does not fit.
    """
    if isinstance(value, str):
        if not TIME.fullmatch(value):
            return None
        try:
            time = datetime.fromisoformat(value)
        except ValueError:  # such as 30 February
            return None
        micros = ((time if time.tzinfo else time.replace(tzinfo=zone)) - calendar.EPOCH) // calendar.MICROSECOND
    elif is_number(value) and -1e15 < value < 1e15:
        micros = math.floor(value * 1000)
    else:
        return None
    return micros if calendar.FIRST <= micros <= calendar.LAST else None


def instants(column: pa.Array, timezone: str) -> pa.Array | None:
    """Turn timestamps of any unit into UTC instants, as :func:`instant` does; None for any other type.

    Args:
        column: the timestamps.
        timezone: the time zone by which timestamps without a zone are shifted.
    """
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return None
    try:
        micros = column.cast(pa.timestamp("us", tz=kind.tz))
    except pa.ArrowInvalid:
        # An unsafe cast cuts nanoseconds off. In coarser units, a value beyond the range of microseconds wraps around:
        # casting it back gives another value.
        micros = column.cast(pa.timestamp("us", tz=kind.tz), safe=False)
        if kind.unit != "ns":
            same = pc.equal(micros.cast(kind, safe=False), column)
            micros = pc.if_else(same, micros, pa.scalar(None, micros.type))
    utc = micros.cast(pa.timestamp("us", tz="UTC"))
    if kind.tz is None and timezone != "UTC":
        # The instant's local time in that zone is the UTC time that Flink meant.
        utc = pc.local_timestamp(utc.cast(pa.timestamp("us", tz=timezone))).cast(utc.type)
    outside = calendar.outside(utc)
    return utc if outside is None else pc.if_else(outside, pa.scalar(None, utc.type), utc)


def text(value: object) -> str | None:
    """Return a text, or an integer's digits; a text with half of a surrogate pair, which JSON allows, does not fit."""
    if isinstance(value, str):
        return value if value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value) else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def texts(column: pa.Array) -> pa.Array | None:
    """Turn texts, UTF-8 bytes, integers and decimals without fractions into texts; None for other types."""
    kind = column.type
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind) and kind.scale < 0:
        return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_binary(kind)):
        return None
    raw = column.cast(pa.binary())
    try:
        return raw.cast(pa.string())  # checks the UTF-8, which parquet's readers do not
    except pa.ArrowInvalid:
        return pa.array([_decoded(value) for value in raw.to_pylist()], pa.string())


def double(value: object) -> float | None:
    """Return a number as a double, see :func:`fraudlake.bronze.numbers.double`."""
    return numbers.double(value) if is_number(value) else None


def integer(value: object) -> int | None:
    """Return a number without a fraction as an integer of 64 bits."""
    return numbers.integer(value) if is_number(value) else None


def short_integer(value: object) -> int | None:
    """Return a number without a fraction as an integer of 32 bits."""
    number = integer(value)
    return number if number is not None and -(2**31) <= number < 2**31 else None


def flag(value: object) -> bool | None:
    """Return a boolean."""
    return value if isinstance(value, bool) else None


def flags(column: pa.Array) -> pa.Array | None:
    """Return booleans; None for any other type."""
    return column if pa.types.is_boolean(column.type) else None


OF_JSON: dict[str, Callable[[Any], Any]] = {
    "TIMESTAMP": instant,
    "STRING": text,
    "DOUBLE": double,
    "BOOLEAN": flag,
    "BIGINT": integer,
    "INT": short_integer,
}
"""Conversion of a JSON value, by the SQL type of its column; None if the value does not fit."""


def convert(column: pa.Array, kind: str, timezone: str) -> pa.Array:
    """Turn a plain column into values of a type.

    Args:
        column: values of any type.
        kind: the wanted type in SQL.
        timezone: the time zone by which timestamps without a zone are shifted.

    Returns:
        The values; those that do not fit are null.
    """
    wanted, convert = _OF_ARROW[kind]
    converted = None if pa.types.is_null(column.type) else convert(column, timezone)
    return pa.nulls(len(column), wanted) if converted is None else converted


_OF_ARROW: dict[str, tuple[pa.DataType, Callable[[pa.Array, str], pa.Array | None]]] = {
    "TIMESTAMP": (pa.timestamp("us", tz="UTC"), instants),
    "STRING": (pa.string(), lambda column, timezone: texts(column)),
    "DOUBLE": (pa.float64(), lambda column, timezone: numbers.doubles(column)),
    "BOOLEAN": (pa.bool_(), lambda column, timezone: flags(column)),
    "BIGINT": (pa.int64(), lambda column, timezone: numbers.integers(column)),
}


def is_number(value: object) -> TypeGuard[int | Decimal]:
    """Return whether a value of JSON is a number; in Python, booleans are integers."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
