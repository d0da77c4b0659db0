"""Drift: how far the features and scores of a day have moved from those that a model was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.model import features, search

if TYPE_CHECKING:
    from datetime import date

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.model.budget import Curve

SCORE = "probability"
LEAST = 1_000
"""A day of fewer rows says little: ten bins of a hundred rows differ by chance alone."""

_LEAST_SHARE = 1e-4
"""The share of an empty bin: the index takes a logarithm, which zero does not have."""
_SHARES = tuple(step / 10 for step in range(1, 10))
_KEYS = ("date", "model_version", "feature")
_COUNTED = "date DATE, model_version STRING, feature STRING, bins ARRAY<BIGINT>"


class Shape(TypedDict):
    """Distribution of a feature: ``edges`` between its bins (the distinct deciles), ``shares`` of the bins, and the
    ``median``. A bin excludes its lower edge and includes its upper edge."""

    edges: list[float]
    shares: list[float]
    median: float


class Profile(TypedDict):
    """Training data of a model: the shape of each feature and of :data:`SCORE`, the last day (ISO, UTC), and how many
    accounts a day reach a probability, which profiles of earlier fraudlakes do not have."""

    shapes: dict[str, Shape]
    until: str
    budgets: NotRequired[Curve]


def shape(values: NDArray[Any], weights: NDArray[Any]) -> Shape:
    """Measure how a feature is distributed; each value counts with its weight."""
    deciles = search.quantiles(values, weights, _SHARES)
    edges = np.unique(deciles)
    counts = np.bincount(np.searchsorted(edges, values), weights=weights, minlength=len(edges) + 1)
    return Shape(
        edges=edges.tolist(),
        shares=(counts / counts.sum()).tolist(),
        median=float(deciles[len(_SHARES) // 2]),
    )


def drift(predictions: DataFrame, profiles: dict[str, Profile]) -> pa.Table:
    """Compute the population stability index of each day (UTC), model version and feature.

    The index is the sum over the bins of (share then - share now) * ln(share then / share now). By convention a value
    below 0.1 means no change, and a value above 0.25 a large change.

    Args:
        predictions: ``date, model_version``, :data:`features.NAMES` and ``probability``.
        profiles: by model version; predictions of other versions are left out.

    Returns:
        The columns of ``gold_feature_drift``. ``is_after_training`` is true for days after the training data: only
        there a high index means that something has changed since.
    """
    known = predictions.where(F.col("model_version").isin(list(profiles)))
    edges = {
        version: {name: shape["edges"] for name, shape in profile["shapes"].items()}
        for version, profile in profiles.items()
    }
    counted = _counted(known, edges).collect()
    return _indexes([(row["date"], row["model_version"], row["feature"], row["bins"]) for row in counted], profiles)


def of_group(predictions: pa.Table, profile: Profile) -> pa.Table:
    """Compute the rows of :func:`drift` of a day and a version in this process."""
    day, version = (predictions[name][0].as_py() for name in ("date", "model_version"))
    counted = (
        (day, version, name, _bins(predictions[name].to_numpy(), shape["edges"]))
        for name, shape in profile["shapes"].items()
    )
    return _indexes(counted, {version: profile})


def _indexes(counted: Iterable[tuple[date, str, str, Sequence[int]]], profiles: dict[str, Profile]) -> pa.Table:
    """Return the indexes of the counts of bins: by day, version and name."""
    rows = []
    for day, version, name, bins in counted:
        profile = profiles[version]
        psi = stability(np.array(profile["shapes"][name]["shares"]), np.array(bins))
        rows.append((day, version, name, sum(bins), psi, day.isoformat() > profile["until"]))
    schema = tables.GOLD_FEATURE_DRIFT.schema
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _bins(values: NDArray[Any], edges: list[float]) -> list[int]:
    bins: list[int] = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1).tolist()
    return bins


def stability(shares: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Compute the population stability index of the counts of bins against their expected shares."""
    then, now = (np.maximum(part, _LEAST_SHARE) for part in (shares, counts / counts.sum()))
    return float(np.sum((now - then) * np.log(now / then)))


def _counted(rows: DataFrame, edges: dict[str, dict[str, list[float]]]) -> DataFrame:
    """Count rows by date, version, feature and bin: each Arrow batch gives partial counts, which are then added up."""
    names = list(dict.fromkeys(name for by_feature in edges.values() for name in by_feature))

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = []
            for (day, version), group in batch.to_pandas().groupby(["date", "model_version"], dropna=False):
                for name, cuts in edges[version].items():
                    bins = _bins(group[name].to_numpy(), cuts)
                    lines.append((None if pd.isna(day) else day, version, name, bins))
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
    # The arrays of a group are of equal length. The sum starts from an empty array: its missing numbers count as zero.
    added = F.aggregate(
        F.collect_list("bins"),
        F.array().cast("array<bigint>"),
        lambda sums, bins: F.zip_with(sums, bins, lambda a, b: F.coalesce(a, F.lit(0)) + b),
    )
    return partial.groupBy(*_KEYS).agg(added.alias("bins"))


MEASURED = (*features.NAMES, SCORE)
"""The names whose drift is measured: the features and the score."""
