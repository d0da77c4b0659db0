"""Windows and their aggregates, against windows that are computed one row at a time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from fraudlake.arrays import Vector
from fraudlake.statistics.windows import Spans, aggregate, deviations, distinct, duration_spans, quantile, row_spans

STARTS = np.array([0, 1, 40, 40, 100])
FUNCTIONS = ("count", "sum", "mean", "min", "max", "distinct")


def drawn() -> tuple[np.ndarray, Vector]:
    draw = np.random.default_rng(3)
    times = np.concatenate([np.sort(draw.integers(0, 60, size)) for size in np.diff(STARTS)])
    return times, Vector(draw.integers(-5, 6, 100).astype(float), draw.random(100) < 0.2)


def expected(function: str, values: list[float]) -> float:
    if function in ("count", "distinct"):
        return len(set(values) if function == "distinct" else values)
    of_values = {"sum": sum, "mean": lambda them: sum(them) / len(them), "min": min, "max": max}
    return of_values[function](values) if values else float("nan")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_windows_of_a_duration_hold_its_edge_and_rows_of_the_same_time(function: str) -> None:
    times, column = drawn()
    totals = aggregate(function, column, duration_spans(times, STARTS, 10))
    for start, stop in pairwise(STARTS):
        for row in range(start, stop):
            window = [other for other in range(start, stop) if times[row] - 10 <= times[other] <= times[row]]
            values = [column.values[other] for other in window if not column.null[other]]
            np.testing.assert_equal(totals[row], expected(function, values))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_windows_of_rows_end_with_the_row(function: str, count: int) -> None:
    _, column = drawn()
    totals = aggregate(function, column, row_spans(STARTS, count))
    for start, stop in pairwise(STARTS):
        for row in range(start, stop):
            window = range(max(start, row - count + 1), row + 1)
            values = [column.values[other] for other in window if not column.null[other]]
            np.testing.assert_equal(totals[row], expected(function, values))


def test_a_sum_of_cents_is_that_of_its_window_alone() -> None:
    column = Vector(np.array([1e9, 0.1, 0.2, 0.3]))
    assert aggregate("sum", column, row_spans(np.array([0, 4]), 2))[-1] == 0.5


@pytest.mark.parametrize(
    "amounts",
    [
        lambda draw, count: np.round(draw.lognormal(3, 2, count), 2),
        lambda draw, count: np.round(draw.normal(0, 1000, count), 2),
        lambda draw, count: draw.normal(0, 1, count) * 10.0 ** draw.integers(-300, 300, count),
        lambda draw, count: draw.choice([0.0, 5e-324, 2.0**-90, 0.1, 0.7, 1e9, 2.0**60, 1e300], count),
    ],
    ids=["payments", "of both signs", "of any size", "at the ends"],
)
def test_sums_are_right_to_a_double(amounts: Callable[[np.random.Generator, int], np.ndarray]) -> None:
    draw = np.random.default_rng(8)
    values = amounts(draw, 2000)
    low = draw.integers(0, 2000, 2000)
    high = np.minimum(low + draw.integers(1, 60, 2000), 2000)
    totals = aggregate("sum", Vector(values), Spans(low, high))
    np.testing.assert_equal(totals, [math.fsum(values[a:b]) for a, b in zip(low, high, strict=True)])


@pytest.mark.parametrize(
    "amounts",
    [
        lambda draw, count: np.round(draw.lognormal(3, 2, count), 2),
        lambda draw, count: 1e9 + draw.choice([0.01, 0.02, 0.03], count),
        lambda draw, count: draw.normal(0, 1, count) * 10.0 ** draw.integers(-150, 150, count),
    ],
    ids=["payments", "far from zero", "of any size"],
)
def test_deviations_are_right_to_a_double(amounts: Callable[[np.random.Generator, int], np.ndarray]) -> None:
    draw = np.random.default_rng(9)
    values = amounts(draw, 300)
    is_there = draw.random(300) < 0.8
    low = draw.integers(0, 300, 300)
    high = np.minimum(low + draw.integers(0, 20, 300), 300)
    mean, deviation = deviations(values, is_there, Spans(low, high))
    for row in range(300):
        window = values[low[row] : high[row]][is_there[low[row] : high[row]]].tolist()
        assert mean[row] == statistics.mean(window) if window else np.isnan(mean[row])
        if len(window) > 1:
            assert deviation[row] == pytest.approx(statistics.stdev(window), rel=1e-15)
        else:
            assert np.isnan(deviation[row])


def test_a_deviation_beyond_a_double_is_infinite_and_other_windows_do_not_see_it() -> None:
    values = np.array([1e300, -1e300, 1.0, 3.0])
    _, deviation = deviations(values, np.ones(4, bool), row_spans(np.array([0, 4]), 2))
    assert deviation[1:].tolist() == [float("inf"), float("inf"), pytest.approx(math.sqrt(2))]


@pytest.mark.parametrize(("share", "rank"), [(0.07, 7), (0.29, 29), (0.5, 50), (0.901, 91), (0.001, 1)])
def test_a_quantile_is_the_value_of_the_nearest_rank(share: float, rank: int) -> None:
    level, totals = quantile(np.arange(100), np.ones(100, int), Spans(np.array([0]), np.array([100])), share)
    assert (level.tolist(), totals.tolist()) == ([rank - 1], [100])


@pytest.mark.parametrize("function", ["sum", "mean"])
def test_infinities_and_what_is_no_number_count_in_their_own_windows_alone(function: str) -> None:
    values = [
        1.0,
        float("inf"),
        2.0,
        3.0,
        float("-inf"),
        float("inf"),
        4.0,
        float("nan"),
        5.0,
        6.0,
        1e308,
        1e308,
        7.0,
        8.0,
    ]
    spans = row_spans(np.array([0, len(values)]), 2)
    totals = aggregate(function, Vector(np.array(values)), spans)
    windows = [values[max(0, row - 1) : row + 1] for row in range(len(values))]
    np.testing.assert_equal(totals, [expected(function, window) for window in windows])


def test_values_are_distinct_in_windows_that_end_before_their_rows() -> None:
    draw = np.random.default_rng(5)
    low = np.sort(draw.integers(0, 100, 300))
    high = np.maximum.accumulate(np.minimum(low + draw.integers(0, 30, 300), 100))
    values, is_counted = draw.integers(0, 9, 100), draw.random(100) < 0.7
    counts = distinct(values, is_counted, Spans(low, high))
    assert counts.tolist() == [len({*values[a:b][is_counted[a:b]]}) for a, b in zip(low, high, strict=True)]
