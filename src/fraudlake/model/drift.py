"""Drift: how far the features and scores of a day have moved from those that a model was made with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake.model import features, search

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

SCORE = "probability"
LEAST = 1_000
"""Rows below which a day says little: ten bins of a hundred rows differ by chance alone."""

_LEAST_SHARE = 1e-4
"""What an empty bin counts as: the index takes a logarithm."""
_SHARES = tuple(step / 10 for step in range(1, 10))
_KEYS = ("date", "model_version", "feature")
_COUNTED = "date DATE, model_version STRING, feature STRING, bins ARRAY<BIGINT>"


class Shape(TypedDict):
    """How a feature is distributed: ``edges`` between its bins (deciles, each once), ``shares`` of the bins, and the
    ``median``. A bin holds what is greater than its lower edge, and its upper edge."""

    edges: list[float]
    shares: list[float]
    median: float


class Profile(TypedDict):
    """What a model was trained on: the shape of each feature and of :data:`SCORE`, and the last day (ISO, UTC)."""

    shapes: dict[str, Shape]
    until: str


def shape(values: NDArray[Any], weights: NDArray[Any]) -> Shape:
    """Measure how a feature is distributed; a value counts as often as its weight says."""
    deciles = search.quantiles(values, weights, _SHARES)
    edges = np.unique(deciles)
    counts = np.bincount(np.searchsorted(edges, values), weights=weights, minlength=len(edges) + 1)
    return Shape(
        edges=edges.tolist(),
        shares=(counts / counts.sum()).tolist(),
        median=float(deciles[len(_SHARES) // 2]),
    )


def drift(predictions: DataFrame, profiles: dict[str, Profile]) -> pd.DataFrame:
    """Compute the population stability index of each day (UTC), model version and feature.

    The index is the sum over the bins of (share then - share now) * ln(share then / share now): by custom below 0.1
    nothing has changed, and above 0.25 a lot has.

    Args:
        predictions: ``date, model_version``, :data:`features.NAMES` and ``probability``.
        profiles: by model version; predictions of others are left out.

    Returns:
        The columns of ``gold_feature_drift``. ``is_after_training`` tells whether the day is one that the model has not
        seen: only there the index says that something has changed since.
    """
    known = predictions.where(F.col("model_version").isin(list(profiles)))
    edges = {
        version: {name: shape["edges"] for name, shape in one["shapes"].items()} for version, one in profiles.items()
    }
    found = []
    for row in _counted(known, edges).collect():
        bins = np.array(row["bins"])
        one = profiles[row["model_version"]]
        psi = stability(np.array(one["shapes"][row["feature"]]["shares"]), bins)
        is_after = row["date"].isoformat() > one["until"]
        found.append((row["date"], row["model_version"], row["feature"], int(bins.sum()), psi, is_after))
    return pd.DataFrame(found, columns=[*_KEYS, "transactions", "psi", "is_after_training"])


def stability(shares: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Compute the population stability index of counts, bin by bin, against the shares that were expected."""
    then, now = (np.maximum(part, _LEAST_SHARE) for part in (shares, counts / counts.sum()))
    return float(np.sum((now - then) * np.log(now / then)))


def _counted(rows: DataFrame, edges: dict[str, dict[str, list[float]]]) -> DataFrame:
    """Count rows by date, version, feature and bin; each Arrow batch gives a few lines, which are then added up."""
    names = list(dict.fromkeys(name for one in edges.values() for name in one))

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = []
            for (day, version), group in batch.to_pandas().groupby(["date", "model_version"], dropna=False):
                for name, cuts in edges[version].items():
                    bins = np.bincount(np.searchsorted(cuts, group[name]), minlength=len(cuts) + 1)
                    lines.append((None if pd.isna(day) else day, version, name, bins.tolist()))
            if lines:
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(column, kind)
                        for column, kind in zip(
                            zip(*lines, strict=True),
                            (pa.date32(), pa.string(), pa.string(), pa.list_(pa.int64())),
                            strict=True,
                        )
                    ],
                    ["date", "model_version", "feature", "bins"],
                )

    partial = rows.select("date", "model_version", *names).mapInArrow(count, _COUNTED)
    # Of one feature all arrays are of one length; a missing number stands for none.
    added = F.aggregate(
        F.collect_list("bins"),
        F.array().cast("array<bigint>"),
        lambda sums, bins: F.zip_with(sums, bins, lambda a, b: F.coalesce(a, F.lit(0)) + b),
    )
    return partial.groupBy(*_KEYS).agg(added.alias("bins"))


MEASURED = (*features.NAMES, SCORE)
"""What drift is measured of."""
