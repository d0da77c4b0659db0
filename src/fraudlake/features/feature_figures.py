"""Feature figures: computes a declared feature of each row from the statistics of the rows and tiles in its window."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fraudlake.statistics import histogram, tiles, windows
from fraudlake.statistics.tiles import NEVER, NOT_YET, Line, Window
from fraudlake.times import durations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.features.feature_plan import Measure, Plan
    from fraudlake.features.feature_rows import Rows, Verdicts
    from fraudlake.settings.features import DeclaredFeature

MOST_DISTINCT = 1_000
"""The values that a tile stores. A window with as many is estimated from a part of all values, by their hashes."""
_ROUNDING = 1e-14
"""A sum of squared deviations below this part of the sum of squares is rounding: all values are equal."""


class Figure:
    """A feature of the rows of a line."""

    def __init__(
        self,
        feature: DeclaredFeature,
        plan: Plan,
        line: Line,
        merged: Mapping[Measure, NDArray[Any]],
        rows: Rows,
        verdicts: Verdicts | None,
    ) -> None:
        """Take a feature and the measures of tiles and rows.

        Args:
            feature: the feature.
            plan: the features of its entity.
            line: the tiles and rows.
            merged: the values of the measures, in the order of the line.
            rows: the rows.
            verdicts: the decided transactions; None without any.
        """
        self._feature = feature
        self._line = line
        self._window = _window(feature, plan)
        self._spans = line.spans(self._window)
        self._measures = plan.measures(feature)
        self._merged = merged
        self._rows = rows
        self._verdicts = verdicts if feature.is_of_labels else None

    def values(self) -> NDArray[np.float64]:
        """Return the feature of each row; NaN if it is undefined."""
        measure = self._measures[0]
        match self._feature.aggregate:
            case "min" | "max":
                extremes = windows.extreme(self._feature.aggregate, self._merged[measure], self._spans)
                return np.where(np.isfinite(extremes), extremes, np.nan)
            case "seconds_since_last" | "seconds_since_fraud":
                return self._seconds(measure)
            case "seconds_since_first":
                first = windows.extreme("min", self._merged[measure].astype(np.float64), self._spans)
                return np.where(first < NOT_YET, np.maximum(self._line.time - first, 0) / 1e6, np.nan)
            case "last":
                times, values = (self._merged[measure] for measure in self._measures)
                return tiles.latest(values, times, self._spans)
            case "changed":
                return self._changed()
            case "stddev":
                return self._deviation()[1]
            case "z_score":
                return self._standardized()
        total = self._total(measure)
        match self._feature.aggregate:
            case "is_first":
                return np.where(total == 0, 1.0, 0.0)
            case "sum":
                return total / self._rows.unit(measure)
            case "count" | "fraud_count":
                return total
        count = self._count(self._measures[1])
        if measure.statistic == "count":
            return windows.mean(total, count)
        mean = windows.mean(total / self._rows.unit(measure), count)
        return self._ratio(mean) if self._feature.aggregate == "ratio_to_mean" else mean

    def distinct(self, hashes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the number of distinct values, estimated from :data:`MOST_DISTINCT` on.

        A tile stores the values with the least hashes. So a part of all values, below a limit of their hashes, is
        complete in every window that has fewer of them than a tile stores, however rows are cut.
        """
        result = windows.distinct(hashes, counts > 0, self._spans).astype(np.float64)
        below = result
        limit = 1 << 63
        power = 0
        while (is_cut := (result >= MOST_DISTINCT) & (below >= MOST_DISTINCT)).any():
            power += 1
            limit >>= 1
            is_below = hashes < 2 * limit - (1 << 63)
            below = windows.distinct(hashes, is_below & (counts > 0), self._spans).astype(np.float64)
            result = np.where(is_cut, below * 2.0**power, result)
            below = np.where(is_cut, below, 0)
        return result

    def quantile(self, levels: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the quantile of each row; NaN without values."""
        level, totals = windows.quantile(levels, counts, self._spans, float(self._feature.quantile or 0))
        return np.where(totals > 0, histogram.numbers_of(level), np.nan)

    def _total(self, measure: Measure) -> NDArray[np.float64]:
        """Return the sum in the window of each row; of frauds, those that verdicts add or take away, too."""
        total = windows.total(self._merged[measure], self._spans).astype(np.float64)
        if self._verdicts is None:
            return total
        # A late row may be missing in the state although the verdict on it is known.
        return np.maximum(total + self._verdicts.frauds(self._window, measure.where), 0)

    def _count(self, measure: Measure) -> NDArray[np.int64]:
        count = windows.total(self._merged[measure], self._spans)
        return count if self._verdicts is None else count + self._verdicts.labels(self._window, measure.where)

    def _ratio(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ratio of each row's own value to the mean; NaN if it is not defined."""
        own, is_there = self._rows.numbers(str(self._measures[0].column))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(is_there & (mean != 0), own / mean, np.nan)

    def _deviation(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the mean and the standard deviation (of a sample, as in SQL); NaN for fewer than one or two values."""
        total, count, high, cross, low = (
            windows.total(self._merged[measure], self._spans).astype(np.float64) for measure in self._measures
        )
        unit = self._rows.unit(self._measures[0])
        squares = high * 2.0**44 + cross * 2.0**23 + low
        with np.errstate(divide="ignore", invalid="ignore"):
            deviations = squares - total * (total / count)
            deviations = np.where(deviations > _ROUNDING * squares, deviations, 0.0)
            deviation = np.sqrt(deviations / (count - 1)) / unit
            return total / count / unit, np.where(count > 1, deviation, np.nan)

    def _standardized(self) -> NDArray[np.float64]:
        """Return by how many deviations each row's own value differs from the mean; NaN if that is undefined."""
        mean, deviation = self._deviation()
        measure = self._measures[0]
        own, is_there = self._rows.numbers(str(measure.column))
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.log(own) if measure.is_logarithm else own
            standardized = (value - mean) / deviation
        return np.where(is_there & (deviation > 0) & np.isfinite(value), standardized, np.nan)

    def _changed(self) -> NDArray[np.float64]:
        times, values = (self._merged[measure] for measure in self._measures)
        column = str(self._measures[0].column)
        is_equal = tiles.is_latest(values, self._rows.own(column), times, self._spans)
        return np.where(self._rows.is_known(column), 1 - is_equal, np.nan)

    def _seconds(self, measure: Measure) -> NDArray[np.float64]:
        """Return the seconds since the last transaction, or the last fraud by label or by verdict."""
        last = self._merged[measure]
        seconds = self._seconds_since(last)
        if self._verdicts is None:
            return seconds
        of_flink = self._seconds_since(_without(self._line, last, *self._verdicts.disputed(measure.where)))
        latest = self._verdicts.last_fraud(self._window, measure.where)
        since_last = np.fmin(of_flink, np.where(latest > NEVER, (self._line.time - latest) / 1e6, np.nan))
        # A decided transaction is visible from the next microsecond on; no verdict on it is known earlier.
        return np.where(seconds == 0, 0.0, since_last)

    def _seconds_since(self, last: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds since the last time in the window of each row; NaN if there is none.

        A tile of the state may have a later time than a late row that follows it in the order of the line.
        """
        latest = windows.extreme("max", last.astype(np.float64), self._spans)
        return np.where(latest > NEVER, np.maximum(self._line.time - latest, 0) / 1e6, np.nan)


def _without(
    line: Line, last: NDArray[np.int64], account: NDArray[np.int64], time: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Clear the last times of tiles that contain any of the given keys and times."""
    tiles_of_line = pd.MultiIndex.from_arrays([line.account, line.tile])
    is_gone = tiles_of_line.isin(pd.MultiIndex.from_arrays([account, time // line.size]))
    return np.where(is_gone, NEVER, last)


def _window(feature: DeclaredFeature, plan: Plan) -> Window:
    delay = durations.microseconds(feature.delay)
    lag = max(delay, durations.microseconds(plan.label_delay)) if feature.is_of_labels else delay
    size = timedelta(seconds=feature.size)
    return Window(durations.microseconds(size), -(-(feature.window or size) // size), delay, lag)
