"""Feature expressions: computes the features that are SQL over other features, columns and the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake.features import account_features
from fraudlake.features.feature_plan import columns_of, evaluate
from fraudlake.settings.features import expressions_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.settings import Settings


@dataclass(frozen=True)
class FeatureExpressions:
    """The expressions among a lake's features, each after those that it names."""

    compiled: Mapping[str, Any]
    columns: tuple[pa.Field, ...]
    """The columns of silver that they read, without those of :data:`account_features.COMPUTED`."""

    @classmethod
    def from_settings(cls, settings: Settings) -> FeatureExpressions:
        """Return the expressions of a lake."""
        compiled = expressions_of(settings.features, settings.silver_columns)
        computed = {*account_features.COMPUTED.names, *(feature.name for feature in settings.features)}
        names = {name for expression in compiled.values() for name in expression.columns} - computed
        return cls(compiled, tuple(columns_of(names, settings.silver_columns)))

    def add_to(self, rows: pa.Table) -> pa.Table:
        """Add the expressions to rows that have all other features, and the columns that expressions read.

        Args:
            rows: :data:`account_features.COMPUTED`, the other declared features, and :attr:`columns`.
        """
        time = rows["timestamp"].cast(pa.int64()).to_numpy()
        for name, expression in self.compiled.items():
            values, null = evaluate(expression, rows, time)
            numbers = values.astype(np.float64)
            # What is divided by zero is not known.
            is_unknown = ~np.isfinite(numbers)
            if null is not None:
                is_unknown |= null
            rows = rows.append_column(name, pa.array(numbers, mask=is_unknown))
        return rows.drop_columns([field.name for field in self.columns])
