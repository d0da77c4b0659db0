"""Feature rows: what each new row of a key adds to the statistics of its tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake.arrays import vector_of
from fraudlake.features.decided import Decided
from fraudlake.features.feature_plan import evaluate
from fraudlake.statistics import histogram, windows
from fraudlake.statistics.tiles import NEUTRAL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.features.feature_plan import Measure, Plan
    from fraudlake.settings.features import DeclaredFeature
    from fraudlake.statistics.tiles import Window

UNITS = 10_000
"""Columns of type double are summed in ten-thousandths."""
LOGARITHM_UNITS = 1_000_000
"""Logarithms are summed in millionths."""
_LARGEST_INTEGER = 10_000_000_000_000
_HALF = 22
"""The bits of the lower half of a number of units, whose square has three parts."""


class Rows:
    """New rows, in the order of their keys and times, and their contributions to tiles."""

    def __init__(self, rows: pa.Table, order: NDArray[np.int64], plan: Plan) -> None:
        """Take rows, as :func:`fraudlake.features.entity_features.compute` does, and the order of keys and times."""
        self._rows = rows
        self._order = order
        self._plan = plan
        self._masks: dict[tuple[str | None, str], NDArray[np.bool_]] = {}
        self._units: dict[tuple[str, bool], NDArray[np.int64]] = {}
        self._numbers: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}

    def contribution(self, measure: Measure) -> NDArray[Any]:
        """Return what each row adds to a measure."""
        chosen = self.chosen(measure.where, measure.labels)
        column = measure.column
        if column is not None:
            chosen = chosen & self.is_known(column)
        match measure.statistic:
            case "count":
                counts: NDArray[np.int64] = (chosen & self._has_units(measure)).astype(np.int64)
                return counts
            case "first" | "last":
                times: NDArray[np.int64] = self._rows["time"].to_numpy()[self._order]
                return np.where(chosen, times, NEUTRAL[measure.statistic])
            case "latest":
                return np.where(chosen, self.own(str(column)), 0)
            case "min" | "max":
                return np.where(chosen, self.numbers(str(column))[0], NEUTRAL[measure.statistic])
        units = np.where(chosen & self._has_units(measure), self._units_of(measure), 0)
        if measure.statistic == "sum":
            return units
        high = units >> _HALF
        low = units & ((1 << _HALF) - 1)
        match measure.statistic:
            case "squares_high":
                return high * high
            case "squares_cross":
                return high * low
        return low * low

    def listed(self, measure: Measure) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the hashes of a column's values, or their levels in a histogram, and how often each row counts."""
        column = str(measure.column)
        counts = (self.chosen(measure.where, measure.labels) & self.is_known(column)).astype(np.int64)
        if measure.statistic == "histogram":
            return histogram.levels_of(self.numbers(column)[0]), counts
        return self.own(column), counts

    def own(self, column: str) -> NDArray[Any]:
        """Return each row's value of a column; 0 for null."""
        values: NDArray[Any] = vector_of(self._rows[column]).values[self._order]
        return values

    def numbers(self, column: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return a column's values, and which are not null."""
        if column not in self._numbers:
            vector = vector_of(self._rows[column])
            values = vector.values[self._order].astype(np.float64)
            is_there = ~np.isnan(values)
            if vector.null is not None:
                is_there &= ~vector.null[self._order]
            self._numbers[column] = values, is_there
        return self._numbers[column]

    def column_values(self, feature: DeclaredFeature) -> pa.ChunkedArray:
        """Return a feature that is the value of a column, in the order in which the rows were given."""
        column = self._rows[self._plan.column_of(feature)]
        if self._plan.is_text(feature):
            return column.cast(pa.string())
        return (
            column.cast(pa.int8()).cast(pa.float64()) if column.type == pa.bool_() else column.cast(pa.float64(), False)
        )

    def _units_of(self, measure: Measure) -> NDArray[np.int64]:
        """Return a column's values, or their logarithms, in whole units of :meth:`unit`."""
        key = (str(measure.column), measure.is_logarithm)
        if key not in self._units:
            self._units[key] = self._whole(measure)
        return self._units[key]

    def _whole(self, measure: Measure) -> NDArray[np.int64]:
        column = str(measure.column)
        values, is_there = self.numbers(column)
        if measure.is_logarithm:
            return windows.units(np.log(np.where(values > 0, values, 1.0)), LOGARITHM_UNITS)
        if self._is_whole(column):
            whole = vector_of(self._rows[column]).values[self._order]
            clipped: NDArray[np.int64] = np.clip(whole, -_LARGEST_INTEGER, _LARGEST_INTEGER)
            return clipped
        return windows.units(np.where(is_there, values, 0), UNITS)

    def unit(self, measure: Measure) -> int:
        """Return how many units of a measure's sum are 1."""
        if measure.is_logarithm:
            return LOGARITHM_UNITS
        return 1 if self._is_whole(str(measure.column)) else UNITS

    def _has_units(self, measure: Measure) -> NDArray[np.bool_] | bool:
        return self.numbers(str(measure.column))[0] > 0 if measure.is_logarithm else True

    def _is_whole(self, column: str) -> bool:
        return bool(pa.types.is_integer(self._rows.schema.field(column).type))

    def is_known(self, column: str) -> NDArray[np.bool_]:
        """Return whether each row has a value of a column."""
        valid: NDArray[np.bool_] = self._rows[column].is_valid().to_numpy()[self._order]
        return valid & self.numbers(column)[1] if self._rows.schema.field(column).type == pa.float64() else valid

    def chosen(self, where: str | None, labels: str = "") -> NDArray[np.bool_]:
        """Return which rows a condition selects; with ``labels``, only those with a known label, or with fraud."""
        key = (where, labels)
        if key not in self._masks:
            self._masks[key] = self._mask(*key)
        return self._masks[key]

    def _mask(self, where: str | None, labels: str) -> NDArray[np.bool_]:
        rows = self._rows
        chosen = np.ones(len(rows), bool)
        if where is not None and len(rows):
            holds = evaluate(self._plan.conditions[where], rows, rows["time"].to_numpy())
            chosen = holds.values if holds.null is None else holds.values & ~holds.null
        if labels:
            label = vector_of(rows["label"])
            is_labelled = np.ones(len(rows), bool) if label.null is None else ~label.null
            chosen = chosen & is_labelled & (label.values if labels in ("fraud", "charged") else True)
        return chosen[self._order]


class Verdicts:
    """Decided transactions, of which a condition (``where``) selects some."""

    def __init__(self, decided: pa.Table, account: NDArray[np.int64], time: NDArray[np.int64], plan: Plan) -> None:
        """Take decided transactions, and the keys and times of the rows that may see them."""
        self._decided = Decided(decided, account, time)
        self._rows = Rows(decided, self._decided.order, plan)

    def frauds(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return what verdicts change in the number of frauds in each row's window."""
        return self._decided.frauds(window, self._rows.chosen(where))

    def labels(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return what verdicts change in the number of labels in each row's window."""
        return self._decided.labels(window, self._rows.chosen(where))

    def last_fraud(self, window: Window, where: str | None) -> NDArray[np.int64]:
        """Return the time of the last fraud by verdict in each row's window."""
        return self._decided.last_fraud(window, self._rows.chosen(where))

    def disputed(self, where: str | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the keys and times of the frauds by label that verdicts dispute."""
        return self._decided.disputed(self._rows.chosen(where))
