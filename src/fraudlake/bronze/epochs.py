"""Epochs: the unit that a number since 1970 is likely in, where it was read in another one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Flink's tutorial is a second after 1970 began. In nanoseconds, that is 2001 in seconds.
_FIRST, _LAST = 1_009_843_200, 4_102_444_800
"""The years 2002 to 2099, in seconds since 1970. A number is a time in them in one unit at most."""
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
UNITS = tuple(_NAMES.values())
"""The units' names."""


def mark(unit: str) -> str:
    """Return how ``_misfits`` says that a time is likely in a unit, which no column's name can be."""
    return f"dt in {unit}"


def misread(number: int, unit: str | None) -> str | None:
    """Return the mark of a number that is no time of this century in the unit that it was read in, but in another one.

    Args:
        number: ticks since 1970.
        unit: the unit that they were read in, ``s``, ``ms``, ``us`` or ``ns``; None where they were not.
    """
    likely = (name for name, ticks in _TICKS.items() if _FIRST * ticks <= number < _LAST * ticks)
    return next((mark(_NAMES[name]) for name in likely if name != unit), None)


def all_misread(numbers: pa.Array, unit: str | None) -> pa.Array | None:
    """Return :func:`misread` of 64-bit integers; None where there are none."""
    ticks = pc.fill_null(numbers, 0).to_numpy()
    marks = np.full(len(ticks), None, object)
    for name, per_second in _TICKS.items():
        if name != unit and _FIRST * per_second < 2**63:
            marks[(ticks >= _FIRST * per_second) & (ticks < _LAST * per_second)] = mark(_NAMES[name])
    marked = pa.array(marks, pa.string())
    return marked if marked.null_count < len(marked) else None
