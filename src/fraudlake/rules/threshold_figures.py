"""Threshold figures: computes the aggregate of a threshold at rows, from the rows in their windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fraudlake.statistics import tiles, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.arrays import Vector
    from fraudlake.statistics.windows import Spans

_DIGITS = 6
"""Logarithms are rounded to millionths, as those of features, so that they are equal on every processor."""


class Aggregate(NamedTuple):
    """The aggregate of a threshold, as its rule names it."""

    name: str
    quantile: float | None
    logarithm: bool


def totals(
    aggregate: Aggregate, times: NDArray[np.int64], column: Vector, chosen: NDArray[np.int64], spans: Spans
) -> NDArray[np.float64]:
    """Return the aggregate of a threshold at some rows; NaN if it is not defined.

    Args:
        aggregate: the aggregate.
        times: the time of each row, microseconds.
        column: the column that is aggregated; of a share, whether each row meets the condition.
        chosen: the numbers of the rows, in ascending order.
        spans: their windows; if the aggregate compares a row with those before it, up to the row.
    """
    match aggregate.name:
        case "count" | "sum" | "mean" | "min" | "max" | "distinct":
            return windows.aggregate(aggregate.name, column, spans)
        case "share":
            return windows.aggregate("mean", column, spans)
        case "is_first":
            return np.where(spans.low == spans.high, 1.0, 0.0)
        case "seconds_since_first":
            return _seconds_since(spans.low, times, chosen, spans)
        case "seconds_since_last":
            return _seconds_since(spans.high - 1, times, chosen, spans)
    is_there = _is_there(column)
    present_times = np.where(is_there, times, tiles.NEVER)
    match aggregate.name:
        case "last":
            return tiles.latest(column.values, present_times, spans)
        case "changed":
            is_equal = tiles.is_latest(column.values, column.values[chosen], present_times, spans)
            return np.where(is_there[chosen], 1 - is_equal, np.nan)
        case "quantile":
            values, levels = np.unique(column.values, return_inverse=True)
            level, counts = windows.quantile(levels, is_there.astype(np.int64), spans, float(aggregate.quantile or 0))
            return np.where(counts > 0, values[level], np.nan)
        case "ratio_to_mean":
            mean = windows.aggregate("mean", column, spans)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                return np.where(is_there[chosen] & (mean != 0), column.values[chosen] / mean, np.nan)
    return _deviation(aggregate, column.values.astype(np.float64), is_there, chosen, spans)


def _is_there(column: Vector) -> NDArray[np.bool_]:
    """Return which rows have a value: one that is not NULL or NaN."""
    is_there: NDArray[np.bool_] = column.values == column.values
    return is_there if column.null is None else is_there & ~column.null


def _seconds_since(
    other: NDArray[np.int64], times: NDArray[np.int64], chosen: NDArray[np.int64], spans: Spans
) -> NDArray[np.float64]:
    """Return the seconds from another row of each window to the row; NaN for an empty window.

    In the order of arrival, a row that is late may have an earlier time than those before it.
    """
    seconds = np.maximum(times[chosen] - times[other], 0) / 1e6
    return np.where(spans.low < spans.high, seconds, np.nan)


def _deviation(
    aggregate: Aggregate,
    values: NDArray[np.float64],
    is_there: NDArray[np.bool_],
    chosen: NDArray[np.int64],
    spans: Spans,
) -> NDArray[np.float64]:
    """Return the standard deviation, or of a ``z_score`` by how many of them each row's value differs from the mean."""
    is_there = is_there & np.isfinite(values)
    if aggregate.logarithm:
        is_there = is_there & (values > 0)
        values = np.log(np.where(is_there, values, 1.0)).round(_DIGITS)
    mean, deviation = windows.deviations(values, is_there, spans)
    if aggregate.name == "stddev":
        return deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        standardized = (values[chosen] - mean) / deviation
    return np.where(is_there[chosen] & (deviation > 0), standardized, np.nan)
