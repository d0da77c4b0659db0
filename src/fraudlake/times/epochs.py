"""Epochs: detects numbers since 1970 that were likely read in the wrong unit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.times import calendar

# The data of Flink's tutorial begins a second after 1970 began. In nanoseconds, that number is 2001 in seconds.
_FIRST = 1_009_843_200
_LAST = 4_102_444_800
"""The years 2002 to 2099, in seconds since 1970. A number is a time of these years in at most one unit."""
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
UNITS = tuple(_NAMES.values())
"""The units' names."""


def mark(unit: str) -> str:
    """Return the mark in ``_misfits`` that a time is likely in a unit; no column can have this name."""
    return f"dt in {unit}"


@cache
def windows(unit: str | None) -> dict[str, tuple[int, int]]:
    """Return the half-open ranges of numbers that are times of this century in another unit, by their mark.

    Args:
        unit: the unit in which the numbers were read, ``s``, ``ms``, ``us`` or ``ns``; None if they were not read.
    """
    others = ((name, ticks) for name, ticks in calendar.TICKS_PER_SECOND.items() if name != unit)
    return {mark(_NAMES[name]): (_FIRST * ticks, _LAST * ticks) for name, ticks in others}


def misread(number: int, unit: str | None) -> str | None:
    """Return the mark of a number since 1970 whose unit is likely not the one in which it was read."""
    return next((mark for mark, (first, end) in windows(unit).items() if first <= number < end), None)


def all_misread(numbers: pa.Array, unit: str | None) -> pa.Array | None:
    """Return :func:`misread` of 64-bit integers; None if no integer has a mark."""
    least, most = pc.min_max(numbers).as_py().values()
    if least is None or not any(least < end and first <= most for first, end in windows(unit).values()):
        return None
    ticks = pc.fill_null(numbers, 0).to_numpy()
    marks = np.full(len(ticks), None, object)
    for likely, (first, end) in windows(unit).items():
        marks[(ticks >= first) & (ticks < end)] = likely
    likely_units = pa.array(marks, pa.string())
    return likely_units if likely_units.null_count < len(likely_units) else None
