"""Feature plan: which statistics of an entity's transactions tiles store, so that its declared features follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa

from fraudlake.arrays import Vector, vector_of
from fraudlake.rules.columns import TIME, query_columns
from fraudlake.settings.features import DeclaredFeature, condition
from fraudlake_patterns.values import Scope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fraudlake.settings import Settings

HASH_OF = "hash_of_"
"""The prefix of a column with 64-bit hashes of another column's values."""


_ARROW = {
    "STRING": pa.string(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}
Statistic = Literal[
    "count",
    "sum",
    "squares_high",
    "squares_cross",
    "squares_low",
    "min",
    "max",
    "first",
    "last",
    "latest",
    "values",
    "histogram",
]
_OF_DEVIATION: tuple[Statistic, ...] = ("sum", "count", "squares_high", "squares_cross", "squares_low")


class Measure(NamedTuple):
    """A statistic that tiles store, of the transactions that a condition selects.

    ``first`` and ``last`` are times, ``latest`` is the value at the time ``last``. A sum of squares has three parts, so
    that each fits into 64 bits. ``values`` and ``histogram`` have tables of their own.
    """

    statistic: Statistic
    column: str | None
    where: str | None
    labels: Literal["", "known", "fraud", "aged", "charged"] = ""
    """``known``: rows with a label; ``fraud``: rows with the label fraud; both by Flink's label. ``aged`` and
    ``charged`` are the same for chargebacks, so that the two states are never confused."""
    is_logarithm: bool = False
    """Whether it is of the logarithms of the positive values."""

    @property
    def name(self) -> str:
        """Its name in the state."""
        column = self.column
        if self.statistic == "values" and column is not None:
            column = column.removeprefix(HASH_OF)
        parts = (self.statistic, self.labels, "logarithm" if self.is_logarithm else "", column, self.where)
        return " ".join(part for part in parts if part)

    @property
    def has_own_table(self) -> bool:
        """Whether a tile stores several rows for it."""
        return self.statistic in ("values", "histogram")


@dataclass(frozen=True)
class Plan:
    """The features of one entity, and the settings that they depend on."""

    features: tuple[DeclaredFeature, ...]
    columns: Mapping[str, Any]
    label_delay: timedelta = timedelta(0)
    """How long after its transaction a label other than a verdict is known."""
    are_chargebacks: bool = False
    """Whether that label is always "genuine" instead of Flink's label."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.features)

    @property
    def sees_labels(self) -> bool:
        """Whether a feature depends on fraud labels."""
        return any(feature.is_of_labels for feature in self.features)

    @cached_property
    def needed(self) -> tuple[pa.Field, ...]:
        """The columns of silver that the features need, and the columns of hashes for distinct values."""
        names: set[str] = set()
        for feature in self.features:
            if feature.aggregate == "value":
                names.add(self.column_of(feature))
            names |= {measure.column for measure in self.measures(feature) if measure.column is not None}
            if feature.where is not None:
                names |= self.conditions[feature.where].columns
        hashed = sorted(name for name in names if name.startswith(HASH_OF))
        plain = columns_of(names.difference(hashed, (TIME,)), self.columns)
        return (*plain, *(pa.field(name, pa.int64()) for name in hashed))

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """The compiled conditions, by their text."""
        return {f.where: condition(f, self.columns) for f in self.features if f.where is not None}

    @cached_property
    def by_size(self) -> dict[int, list[DeclaredFeature]]:
        """The features with a window, by the length of their tiles in seconds."""
        sized = [feature for feature in self.features if feature.aggregate != "value"]
        sizes = sorted({feature.size for feature in sized})
        return {size: [feature for feature in sized if feature.size == size] for size in sizes}

    def column_of(self, feature: DeclaredFeature) -> str:
        """Return the name of a feature's column in silver."""
        return query_columns(self.columns)[str(feature.column)].name

    def schema(self) -> pa.Schema:
        """Return the features as columns: texts for the values of text columns, otherwise numbers."""
        return pa.schema(
            [(feature.name, pa.string() if self.is_text(feature) else pa.float64()) for feature in self.features]
        )

    def is_text(self, feature: DeclaredFeature) -> bool:
        """Return whether a feature is a text."""
        is_value = feature.aggregate == "value"
        return is_value and query_columns(self.columns)[str(feature.column)].type.name == "STRING"

    def measures(self, feature: DeclaredFeature) -> tuple[Measure, ...]:
        """Return the measures from which a feature is computed."""
        column = None if feature.column is None else self.column_of(feature)
        where = feature.where
        any_label, fraud = self._labels
        match feature.aggregate:
            case "count":
                return (Measure("count", column, where),)
            case "is_first":
                return (Measure("count", None, where),)
            case "share":
                return (Measure("count", None, where), Measure("count", None, None))
            case "sum" | "min" | "max":
                return (Measure(feature.aggregate, column, where),)
            case "mean" | "ratio_to_mean":
                return (Measure("sum", column, where), Measure("count", column, where))
            case "stddev" | "z_score":
                return tuple(Measure(one, column, where, "", feature.logarithm) for one in _OF_DEVIATION)
            case "distinct":
                return (Measure("values", f"{HASH_OF}{column}", where),)
            case "quantile":
                return (Measure("histogram", column, where),)
            case "last":
                return (Measure("last", column, where), Measure("latest", column, where))
            case "changed":
                return (Measure("last", f"{HASH_OF}{column}", where), Measure("latest", f"{HASH_OF}{column}", where))
            case "seconds_since_last":
                return (Measure("last", None, where),)
            case "seconds_since_first":
                return (Measure("first", None, where),)
            case "fraud_count":
                return (Measure("count", None, where, fraud),)
            case "fraud_share":
                return (Measure("count", None, where, fraud), Measure("count", None, where, any_label))
            case "seconds_since_fraud":
                return (Measure("last", None, where, fraud),)
        return ()

    @property
    def _labels(self) -> tuple[Literal["known", "aged"], Literal["fraud", "charged"]]:
        return ("aged", "charged") if self.are_chargebacks else ("known", "fraud")


def evaluate(expression: Any, rows: pa.Table, time: NDArray[np.int64]) -> Vector:
    """Evaluate a compiled expression over rows.

    Args:
        expression: the expression.
        rows: the columns that it reads, except the time.
        time: the event time of each row, microseconds since 1970.
    """
    columns = {name: vector_of(rows[name]) for name in expression.columns - {TIME}}
    columns[TIME] = Vector(time)
    values: Vector = expression.vector(Scope(columns, len(rows), (0, 0), 0))
    return values


def columns_of(names: Iterable[str], columns: Mapping[str, Any]) -> list[pa.Field]:
    """Return columns of silver as Arrow fields, for the setting ``columns``."""
    types = {column.name: _ARROW[column.type.name] for column in query_columns(columns).values()}
    return [pa.field(name, types[name]) for name in sorted(names)]


def plans(settings: Settings) -> dict[str, Plan]:
    """Return the plan of each entity that has features other than expressions."""
    by_entity: dict[str, list[DeclaredFeature]] = {}
    for feature in settings.features:
        if feature.expression is None:
            by_entity.setdefault(feature.entity, []).append(feature)
    known_after = settings.known_after
    are_chargebacks = settings.are_chargebacks
    return {
        entity: Plan(tuple(of), settings.silver_columns, known_after, are_chargebacks)
        for entity, of in by_entity.items()
    }
