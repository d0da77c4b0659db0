"""Forms: conversions of values in a unit or a pattern that ``[payload]`` declares.

A function of JSON takes one value, as in :mod:`fraudlake.bronze.conversions`; one of Arrow takes a plain array. A unit
applies to numbers, a pattern or a zone to texts; every other value is converted as if no form were declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.bronze import conversions, numbers
from fraudlake.times import calendar

if TYPE_CHECKING:
    from fraudlake.settings.payload import PayloadField

_MINOR = 100
_UNITS = {"seconds": "s", "milliseconds": "ms", "microseconds": "us"}
_TIME = pa.timestamp("us", tz="UTC")
_TEXT = r"^\d{4}-\d\d-\d\d[T ]([01]\d|2[0-3]):\d\d(:\d\d(\.\d{1,6})?)?$"
"""A text of a time, without a zone and with at most microseconds, which Arrow can parse."""
MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Microseconds in a unit of time."""


class Form(NamedTuple):
    """The unit or pattern of a field's values. It is sent to Spark's tasks."""

    minor: bool = False
    """Numbers are hundredths."""
    unit: str | None = None
    """Numbers are times since 1970 in ``s``, ``ms`` or ``us``."""
    pattern: tuple[str, str] | None = None
    """Texts match this regular expression, and this replacement makes them ISO-8601."""
    zone: str | None = None
    """Texts are times, in this zone if they have no zone themselves."""


def read_form(field: PayloadField) -> Form | None:
    """Return the form that the settings declare; None if they declare none."""
    zone = field.zone or (None if field.pattern is None else "UTC")
    form = Form(field.unit == "minor", _UNITS.get(field.unit or ""), field.as_iso, zone)
    return None if form == Form() else form


@lru_cache
def json_converter(kind: str, form: Form | None) -> Callable[[Any], Any]:
    """Return the conversion of a JSON value to a column's type; it returns None if the value does not fit."""
    plain = conversions.OF_JSON[kind]
    if form is None:
        return plain
    if form.minor:
        return lambda value: _hundredth(plain(value))
    return partial(_instant, form=form)


def convert(column: pa.Array, kind: str, form: Form | None, timezone: str) -> pa.Array:
    """Turn a plain column into values of a type; those that do not fit are null.

    Args:
        column: values of any type.
        kind: the wanted type in SQL.
        form: the form of the values; None if they have none.
        timezone: the time zone of timestamps without a zone.
    """
    if form is not None and form.unit is not None and _is_number(column.type):
        return _instants_of_numbers(column, form.unit)
    if form is not None and form.zone is not None and _is_text(column.type):
        texts = conversions.texts(column)
        return _instants_of_texts(texts, form)
    values = conversions.convert(column, kind, timezone)
    return pc.divide(values, float(_MINOR)) if form is not None and form.minor else values


def ticks(column: pa.Array) -> pa.Array | None:
    """Return numbers as 64-bit integers, rounded down; null if out of range. None for any other type."""
    if pa.types.is_integer(column.type):
        return numbers.integers(column)
    if not _is_number(column.type):
        return None
    whole = pc.floor(numbers.doubles(column))
    inside = pc.and_(pc.less(whole, 2.0**63), pc.greater_equal(whole, -(2.0**63)))
    return pc.if_else(inside, whole, pa.scalar(None, pa.float64())).cast(pa.int64())


def _hundredth(value: float | None) -> float | None:
    return None if value is None else value / _MINOR


def _instant(value: object, form: Form) -> int | None:
    """Read a time in microseconds since 1970; None if it does not fit."""
    if isinstance(value, str) and form.zone is not None:
        return _instant_of_text(value, form)
    if form.unit is None or not conversions.is_number(value) or not -1e18 < value < 1e18:
        return conversions.instant(value)
    micros = math.floor(value * MICROSECONDS[form.unit])
    return micros if calendar.FIRST <= micros <= calendar.LAST else None


def _instant_of_text(text: str, form: Form) -> int | None:
    if form.pattern is not None:
        match = re.fullmatch(form.pattern[0], text, re.ASCII)
        if match is None:
            return None
        text = match.expand(form.pattern[1])
    return conversions.instant(text, ZoneInfo(str(form.zone)))


def _instants_of_numbers(column: pa.Array, unit: str) -> pa.Array:
    per = MICROSECONDS[unit]
    if pa.types.is_decimal(column.type):
        read = partial(_instant, form=Form(unit=unit))
        return pa.array([None if value is None else read(value) for value in column.to_pylist()], _TIME)
    if pa.types.is_floating(column.type):
        # Round to the nearest microsecond, since a double of seconds is seldom exact.
        micros = np.rint(column.cast(pa.float64()).fill_null(math.nan).to_numpy(zero_copy_only=False) * per)
        fits = (micros >= calendar.FIRST) & (micros <= calendar.LAST)
        return pa.array(np.where(fits, micros, 0).astype(np.int64), mask=~fits).cast(_TIME)
    whole = numbers.integers(column)
    inside = pc.and_(pc.greater_equal(whole, -(-calendar.FIRST // per)), pc.less_equal(whole, calendar.LAST // per))
    return pc.multiply(pc.if_else(inside, whole, pa.scalar(None, pa.int64())), per).cast(_TIME)


def _instants_of_texts(texts: pa.Array, form: Form) -> pa.Array:
    """Parse texts with Arrow if all have its format; otherwise one by one, with the same result."""
    iso = texts
    if form.pattern is not None:
        regex = f"^(?:{form.pattern[0]})$"
        matching = pc.if_else(pc.match_substring_regex(texts, regex), texts, pa.scalar(None, pa.string()))
        iso = pc.replace_substring_regex(matching, regex, form.pattern[1])
    if pc.all(pc.match_substring_regex(iso, _TEXT)).as_py():
        try:
            times = pc.assume_timezone(iso.cast(pa.timestamp("us")), form.zone).cast(_TIME)
            outside = calendar.outside(times)
            return times if outside is None else pc.if_else(outside, pa.scalar(None, _TIME), times)
        except pa.ArrowInvalid:  # a day that does not exist, or an hour that a clock skips or shows twice
            pass
    read = partial(_instant_of_text, form=form)
    return pa.array([None if text is None else read(text) for text in texts.to_pylist()], _TIME)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))
