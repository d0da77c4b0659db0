"""Windows: finds each row's window in its partition, by time or by number of rows, and aggregates windows as arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraudlake.arrays import Vector

_DIGIT, _DIGITS = 2.0**30, 5
"""A value is split into five integers of 30 bits, from 2**60 down to 2**-90."""
_LEAST, _MOST = 2.0**-90, 2.0**60


class Spans(NamedTuple):
    """For each row, the first row of its window and the row after its last."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


def of_rows(starts: NDArray[np.int64], count: int) -> Spans:
    """Return windows of each row and the rows before it in its partition, ``count`` in all."""
    rows = np.arange(starts[-1])
    first = np.repeat(starts[:-1], np.diff(starts))
    return Spans(np.maximum(rows - count + 1, first), rows + 1)


def of_duration(times: NDArray[np.int64], starts: NDArray[np.int64], duration: int) -> Spans:
    """Return windows of a partition's rows that are not later than a row, and at most ``duration`` earlier.

    Rows of the same time are in each other's windows, as in Flink's RANGE.
    """
    count = len(times)
    partition = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    # The beginnings of windows are sorted among the rows: rows sorted before a beginning are before its window.
    asked = np.concatenate([times - duration, times])
    is_row = np.repeat([False, True], count)
    order = np.lexsort((is_row, asked, np.tile(partition, 2)))
    before = np.cumsum(is_row[order]) - is_row[order]
    low = np.empty(count, np.int64)
    begins = ~is_row[order]
    low[order[begins]] = before[begins]
    last_of_time = np.append(
        (times[1:] != times[:-1]) | (partition[1:] != partition[:-1]), np.ones(min(count, 1), bool)
    )
    ends = np.flatnonzero(last_of_time) + 1
    return Spans(low, ends[np.searchsorted(ends, np.arange(count), side="right")])


def aggregate(function: str, column: Vector, spans: Spans) -> NDArray[np.float64]:
    """Aggregate the values of each window that are not NULL; without such values the result is NaN.

    ``count`` and ``distinct`` are then 0.
    """
    valid = np.ones(len(column.values), bool) if column.null is None else ~column.null
    counts = _difference(np.cumsum(valid), spans)
    if function == "count":
        return counts.astype(np.float64)
    if function == "distinct":
        return _distinct(column.values, valid, spans)
    values = np.where(valid, column.values, 0).astype(np.float64)
    if function in ("sum", "average"):
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            totals = _sums(values, spans)
            return np.where(counts > 0, totals if function == "sum" else totals / counts, np.nan)
    worst, better = (np.inf, np.minimum) if function == "minimum" else (-np.inf, np.maximum)
    extremes = extreme(np.where(valid, values, worst), spans, better)
    return np.where(counts > 0, extremes, np.nan)


def _sums(values: NDArray[np.float64], spans: Spans) -> NDArray[np.float64]:
    """Return the sum of each window, exact to a double whatever other rows there are.

    Differences of a running sum of all rows would lose digits as the sum grows. So each value is split into integers of
    few bits, whose running sums are exact. The parts of a window are added with the error of each addition.
    """
    size = np.abs(values)
    is_usual = (values == 0) | ((size > _LEAST) & (size < _MOST))
    totals, lost = np.zeros(len(spans.low)), np.zeros(len(spans.low))
    rest, unit = np.where(is_usual, values, 0) / _DIGIT, _DIGIT
    for _ in range(_DIGITS):
        digits = np.trunc(rest)
        part = _difference(np.cumsum(digits.astype(np.int64)), spans) * unit
        sums = totals + part
        added = sums - totals
        lost += (totals - (sums - added)) + (part - added)
        totals, rest, unit = sums, (rest - digits) * _DIGIT, unit / _DIGIT
    totals += lost
    for row in np.flatnonzero(_difference(np.cumsum(~is_usual | (rest != 0)), spans)):
        totals[row] = _sum(values[spans.low[row] : spans.high[row]])
    return totals


def _sum(values: NDArray[np.float64]) -> float:
    try:
        return math.fsum(values.tolist())
    except (OverflowError, ValueError):  # of a part of the sum, or of infinities of both signs
        return float(values.sum())


def _difference(running: NDArray[Any], spans: Spans) -> NDArray[Any]:
    padded = np.concatenate([np.zeros(1, running.dtype), running])
    difference: NDArray[Any] = padded[spans.high] - padded[spans.low]
    return difference


def extreme(
    values: NDArray[np.float64], spans: Spans, better: Callable[..., NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the extreme of each window, from two runs of 2**n rows that cover it."""
    length = spans.high - spans.low
    level = np.frexp(length)[1] - 1
    result, runs = np.empty(len(length)), values
    for power in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == power)
        result[chosen] = better(runs[spans.low[chosen]], runs[spans.high[chosen] - (1 << power)])
        step = 1 << power
        runs = np.append(better(runs[:-step], runs[step:]), runs[-step:]) if step < len(runs) else runs
    return result


def _distinct(values: NDArray[Any], valid: NDArray[np.bool_], spans: Spans) -> NDArray[np.float64]:
    """Count the distinct values of windows, whose beginnings and ends increase."""
    codes = np.unique(values, return_inverse=True)[1].tolist()
    known, inside = valid.tolist(), Counter[int]()
    result, begin, end = [], 0, 0
    for low, high in zip(spans.low.tolist(), spans.high.tolist(), strict=True):
        for row in range(end, high):
            if known[row]:
                inside[codes[row]] += 1
        end = max(end, high)
        for row in range(begin, low):
            if known[row]:
                inside[codes[row]] -= 1
                if not inside[codes[row]]:
                    del inside[codes[row]]
        begin = low
        result.append(len(inside))
    return np.array(result, np.float64)
