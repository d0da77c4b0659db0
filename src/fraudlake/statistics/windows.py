"""Windows: finds each row's window in its partition, by time or by number of rows, and aggregates windows as arrays."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fraudlake.arrays import Vector

LARGEST = 1e9
"""The largest number that :func:`units` returns without clipping, so that no sum of units overflows."""
_DIGIT = 2.0**30
_DIGITS = 5
"""A value is split into five integers of 30 bits, from 2**60 down to 2**-90."""
_LEAST = 2.0**-90
_MOST = 2.0**60
_EXTREMES = {"min": (np.inf, np.minimum), "max": (-np.inf, np.maximum)}


class Spans(NamedTuple):
    """For each row, the first row of its window and the row after its last."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]


class Ranks:
    """One integer for a partition and a number in it, so that a single search finds rows of many partitions."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        """Take the numbers of all rows; their range times the number of partitions must fit into 64 bits."""
        self._least = int(numbers.min()) if len(numbers) else 0
        self._width = int(numbers.max()) - self._least + 2 if len(numbers) else 1

    def find(self, partition: NDArray[Any], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ranks; numbers beyond those of all rows rank before the first one, or after the last one."""
        return partition * self._width + np.clip(number - self._least, 0, self._width - 1)


def row_spans(starts: NDArray[np.int64], count: int) -> Spans:
    """Return windows of each row and the rows before it in its partition, ``count`` in all."""
    rows = np.arange(starts[-1])
    first = np.repeat(starts[:-1], np.diff(starts))
    return Spans(np.maximum(rows - count + 1, first), rows + 1)


def duration_spans(times: NDArray[np.int64], starts: NDArray[np.int64], duration: int) -> Spans:
    """Return windows of a partition's rows that are not later than a row, and at most ``duration`` earlier.

    Rows of the same time are in each other's windows, as in Flink's RANGE.
    """
    partition = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    # Microseconds of many partitions would not fit into ranks, but the numbers of distinct times do.
    distinct_times, number = np.unique(times, return_inverse=True)
    ranks = Ranks(number)
    rank = ranks.find(partition, number)
    low = np.searchsorted(rank, ranks.find(partition, np.searchsorted(distinct_times, times - duration)))
    return Spans(low, np.searchsorted(rank, rank, side="right"))


def before(rows: NDArray[np.int64], spans: Spans) -> Spans:
    """Return the part of the window of each of the ``rows`` that is before it."""
    return Spans(np.minimum(spans.low, rows), rows)


def aggregate(function: str, column: Vector, spans: Spans) -> NDArray[np.float64]:
    """Aggregate the values of each window that are not NULL; without such values the result is NaN.

    ``count`` and ``distinct`` are then 0. For ``distinct``, the beginnings and ends of windows must increase.
    """
    valid = np.ones(len(column.values), bool) if column.null is None else ~column.null
    if function == "distinct":
        return distinct(np.unique(column.values, return_inverse=True)[1], valid, spans).astype(np.float64)
    counts = total(valid, spans)
    if function == "count":
        return counts.astype(np.float64)
    values = np.where(valid, column.values, 0).astype(np.float64)
    if function in ("sum", "mean"):
        with np.errstate(invalid="ignore", over="ignore"):
            sums = _sums(values, spans)
        return np.where(counts > 0, sums, np.nan) if function == "sum" else mean(sums, counts)
    which: Literal["min", "max"] = "min" if function == "min" else "max"
    return np.where(counts > 0, extreme(which, np.where(valid, values, _EXTREMES[which][0]), spans), np.nan)


def units(values: NDArray[np.float64], per: int) -> NDArray[np.int64]:
    """Return numbers as whole units, of which there are ``per`` in 1; sums of units are exact."""
    whole: NDArray[np.int64] = np.rint(np.clip(values, -LARGEST, LARGEST) * per).astype(np.int64)
    return whole


def total(values: NDArray[Any], spans: Spans) -> NDArray[np.int64]:
    """Return the sum of the integers or booleans of each window."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    sums: NDArray[np.int64] = running[spans.high] - running[spans.low]
    return sums


def mean(totals: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Divide totals by counts; NaN for a count of 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts > 0, totals / counts, np.nan)


def deviations(
    values: NDArray[np.float64], is_there: NDArray[np.bool_], spans: Spans
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the standard deviation (of a sample, as in SQL) of each window, right to a double.

    NaN for fewer than one or two values. A deviation is the small difference of large sums, so these are sums of
    Python's integers, of any size: each value is a whole number of units, which are a power of 2.

    Args:
        values: the value of each row; those that are there are finite.
        is_there: which rows have a value.
        spans: the windows.
    """
    ratios = [number.as_integer_ratio() for number in np.where(is_there, values, 0.0).tolist()]
    unit = max((denominator for _, denominator in ratios), default=1)
    whole = [numerator * (unit // denominator) for numerator, denominator in ratios]
    sums = [*accumulate(whole, initial=0)]
    squares = [*accumulate((number * number for number in whole), initial=0)]
    counts = total(is_there, spans)
    means = np.full(len(counts), np.nan)
    results = np.full(len(counts), np.nan)
    for row in np.flatnonzero(counts).tolist():
        low = int(spans.low[row])
        high = int(spans.high[row])
        count = int(counts[row])
        of_window = sums[high] - sums[low]
        means[row] = of_window / (count * unit)
        if count > 1:
            squared = count * (squares[high] - squares[low]) - of_window * of_window
            results[row] = _root(squared, count * (count - 1) * unit * unit)
    return means, results


def _root(numerator: int, denominator: int) -> float:
    try:
        return math.sqrt(numerator / denominator)
    except OverflowError:  # of values above 1e154
        return math.inf


def plus(number: Any, other: Any) -> tuple[Any, Any]:
    """Add two numbers, arrays or Spark columns; also return what rounding lost (Knuth's TwoSum)."""
    rounded = number + other
    added = rounded - number
    return rounded, (number - (rounded - added)) + (other - added)


def _sums(values: NDArray[np.float64], spans: Spans) -> NDArray[np.float64]:
    """Return the sum of each window, exact to a double whatever the other rows are.

    Differences of a running sum of all rows would lose digits as the sum grows. So each value is split into integers of
    few bits, whose running sums are exact. The parts of a window are added with the error of each addition.
    """
    size = np.abs(values)
    is_usual = (values == 0) | ((size > _LEAST) & (size < _MOST))
    totals = np.zeros(len(spans.low))
    lost = np.zeros(len(spans.low))
    rest = np.where(is_usual, values, 0) / _DIGIT
    unit = _DIGIT
    for _ in range(_DIGITS):
        digits = np.trunc(rest)
        totals, error = plus(totals, total(digits.astype(np.int64), spans) * unit)
        lost += error
        rest = (rest - digits) * _DIGIT
        unit = unit / _DIGIT
    totals += lost
    for row in np.flatnonzero(total(~is_usual | (rest != 0), spans)):
        totals[row] = _sum(values[spans.low[row] : spans.high[row]])
    return totals


def _sum(values: NDArray[np.float64]) -> float:
    try:
        return math.fsum(values.tolist())
    except (OverflowError, ValueError):  # of a part of the sum, or of infinities of both signs
        return float(values.sum())


def extreme(function: Literal["min", "max"], values: NDArray[np.float64], spans: Spans) -> NDArray[np.float64]:
    """Return the extreme of each window, from two runs of 2**n rows that cover it; an infinity for an empty window."""
    nothing, better = _EXTREMES[function]
    length = spans.high - spans.low
    level = np.frexp(length)[1] - 1
    result = np.full(len(length), nothing)
    runs = values
    for power in range(int(level.max(initial=-1)) + 1):
        chosen = np.flatnonzero(level == power)
        result[chosen] = better(runs[spans.low[chosen]], runs[spans.high[chosen] - (1 << power)])
        step = 1 << power
        runs = np.append(better(runs[:-step], runs[step:]), runs[-step:]) if step < len(runs) else runs
    return result


def distinct(values: NDArray[np.int64], is_counted: NDArray[np.bool_], spans: Spans) -> NDArray[np.int64]:
    """Count the distinct values of windows, whose beginnings and ends increase.

    So an occurrence of a value is the last one in the windows of a run of rows: from the first window with it to the
    first window with the next occurrence, or that begins after it.
    """
    at = np.flatnonzero(is_counted)
    order = np.argsort(values[at], kind="stable")
    is_again = np.diff(values[at][order]) == 0
    follows = np.full(len(at), len(values))
    follows[order[:-1][is_again]] = at[order[1:][is_again]]
    begin = np.searchsorted(spans.high, at, "right")
    end = np.minimum(np.searchsorted(spans.high, follows, "right"), np.searchsorted(spans.low, at, "right"))
    begin, end = begin[begin < end], end[begin < end]
    rows = len(spans.low)
    change = np.bincount(begin, minlength=rows + 1) - np.bincount(end, minlength=rows + 1)
    return np.cumsum(change)[:rows]


def quantile(
    levels: NDArray[np.int64], counts: NDArray[np.int64], spans: Spans, share: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least level of each window below or at which ``share`` of its counts are, and the sum of its counts.

    Bit by bit from the highest, rows are divided stably into those without and with the bit, and each window
    continues in the half that has its quantile (a wavelet matrix, with counts). Without counts the level is 0.

    Args:
        levels: the level of each row, at least 0.
        counts: how often it occurs.
        spans: the windows.
        share: above 0, and below 1.
    """
    low = spans.low.copy()
    high = spans.high.copy()
    totals = total(counts, spans)
    # 0.07 of 100 counts are 7, though 100 * 0.07 is above 7 as a double.
    wanted = np.maximum(np.ceil(np.round(totals * share, 6)), 1).astype(np.int64)
    result = np.zeros(len(low), np.int64)
    for bit in reversed(range(int(levels.max(initial=0)).bit_length())):
        is_above = (levels >> bit & 1).astype(bool)
        below = np.cumsum(np.append(0, ~is_above))
        in_low = below[low]
        in_high = below[high]
        sums = np.cumsum(np.append(0, np.where(is_above, 0, counts)))
        count = sums[high] - sums[low]
        goes_up = wanted > count
        wanted -= np.where(goes_up, count, 0)
        result += goes_up.astype(np.int64) << bit
        low = np.where(goes_up, below[-1] + low - in_low, in_low)
        high = np.where(goes_up, below[-1] + high - in_high, in_high)
        order = np.argsort(is_above, kind="stable")
        levels = levels[order]
        counts = counts[order]
    return np.where(totals > 0, result, 0), totals
