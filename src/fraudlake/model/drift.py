"""Drift: measures how far a day's features and scores have moved from a model's training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.model import search

if TYPE_CHECKING:
    from datetime import date

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fraudlake.model.budget import Curve

SCORE = "probability"
LEAST = 1_000
"""The least rows of a day for a meaningful index: ten bins of a hundred rows differ by chance alone."""

_LEAST_SHARE = 1e-4
"""The share of an empty bin: the index takes a logarithm, which zero does not have."""
_MOST_TEXTS = 20
_SHARES = tuple(step / 10 for step in range(1, 10))
_KEYS = ("date", "model_version", "feature")
_COUNTED = "date DATE, model_version STRING, feature STRING, bins ARRAY<BIGINT>"


class Shape(TypedDict):
    """Distribution of a feature: ``edges`` between its bins (the distinct deciles), ``shares`` of the bins, and the
    ``median``. A bin excludes its lower edge and includes its upper edge; the last one has missing numbers, too. A text
    feature has a bin for each of its ``values``, the most frequent ones, and one for all others."""

    edges: list[float]
    shares: list[float]
    median: float
    values: NotRequired[list[str]]


class Profile(TypedDict):
    """Training data of a model: the shape of each feature and of :data:`SCORE`, the last day (ISO, UTC), and how many
    accounts a day reach a probability."""

    shapes: dict[str, Shape]
    until: str
    budgets: Curve


def shape(values: NDArray[Any], weights: NDArray[Any]) -> Shape:
    """Measure how a feature is distributed; each value counts with its weight."""
    if values.dtype == object:
        return _shape_of_texts(values, weights)
    is_there = ~np.isnan(values)
    present, counting = (values, weights) if is_there.all() else (values[is_there], weights[is_there])
    deciles = search.quantiles(present, counting, _SHARES) if len(present) else np.zeros(len(_SHARES))
    edges = np.unique(deciles)
    counts = np.bincount(np.searchsorted(edges, values), weights=weights, minlength=len(edges) + 1)
    return Shape(
        edges=edges.tolist(),
        shares=(counts / counts.sum()).tolist(),
        median=float(deciles[len(_SHARES) // 2]),
    )


def _shape_of_texts(values: NDArray[Any], weights: NDArray[Any]) -> Shape:
    counts = pd.Series(weights).groupby(pd.Series(values)).sum().sort_values(ascending=False, kind="stable")
    frequent = [str(text) for text in counts.index[:_MOST_TEXTS]]
    shares = np.append(counts.to_numpy()[:_MOST_TEXTS], 0.0) / weights.sum()
    shares[-1] = 1 - shares.sum()
    return Shape(edges=[], shares=shares.tolist(), median=0.0, values=frequent)


def drift(predictions: DataFrame, profiles: dict[str, Profile]) -> pa.Table:
    """Compute the population stability index of each day (UTC), model version and feature.

    The index is the sum over the bins of (share then - share now) * ln(share then / share now). By convention a value
    below 0.1 means no change, and a value above 0.25 a large change.

    Args:
        predictions: ``date, model_version``, the features of the profiles, and ``probability``.
        profiles: by model version; predictions of other versions are left out.

    Returns:
        The columns of ``gold_feature_drift``. ``is_after_training`` is true for days after the training data: only on
        those days does a high index mean a change since training.
    """
    comparable = predictions.where(F.col("model_version").isin(list(profiles)))
    counted = _counted(comparable, {version: profile["shapes"] for version, profile in profiles.items()}).collect()
    return _indexes([(row["date"], row["model_version"], row["feature"], row["bins"]) for row in counted], profiles)


def measure_group(predictions: pa.Table, profile: Profile) -> pa.Table:
    """Compute the rows of :func:`drift` for one day and version in this process."""
    day, version = (predictions[name][0].as_py() for name in ("date", "model_version"))
    counted = (
        (day, version, name, _bins(predictions[name].to_numpy(), shape)) for name, shape in profile["shapes"].items()
    )
    return _indexes(counted, {version: profile})


def _indexes(counted: Iterable[tuple[date, str, str, Sequence[int]]], profiles: dict[str, Profile]) -> pa.Table:
    """Compute the indexes from counts of bins by day, version and name."""
    rows = []
    for day, version, name, bins in counted:
        profile = profiles[version]
        psi = stability(np.array(profile["shapes"][name]["shares"]), np.array(bins))
        rows.append((day, version, name, sum(bins), psi, day.isoformat() > profile["until"]))
    schema = tables.GOLD_FEATURE_DRIFT.schema
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _bins(values: NDArray[Any], shape: Shape) -> list[int]:
    if "values" in shape:
        at = pd.Index(shape["values"]).get_indexer(pd.Index(values))
        at[at < 0] = len(shape["values"])
    else:
        at = np.searchsorted(shape["edges"], values)
    bins: list[int] = np.bincount(at, minlength=len(shape["shares"])).tolist()
    return bins


def stability(shares: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Compute the population stability index of the counts of bins against their expected shares."""
    then, now = (np.maximum(part, _LEAST_SHARE) for part in (shares, counts / counts.sum()))
    return float(np.sum((now - then) * np.log(now / then)))


def _counted(rows: DataFrame, shapes: dict[str, dict[str, Shape]]) -> DataFrame:
    """Count rows by date, version, feature and bin: each Arrow batch gives partial counts, which are then added up."""
    names = list(dict.fromkeys(name for by_feature in shapes.values() for name in by_feature))

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = []
            for (day, version), group in batch.to_pandas().groupby(["date", "model_version"], dropna=False):
                for name, shape in shapes[version].items():
                    bins = _bins(group[name].to_numpy(), shape)
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
    # The sum starts from an empty array, whose missing numbers count as zero; all other arrays have equal length.
    added = F.aggregate(
        F.collect_list("bins"),
        F.array().cast("array<bigint>"),
        lambda sums, bins: F.zip_with(sums, bins, lambda a, b: F.coalesce(a, F.lit(0)) + b),
    )
    return partial.groupBy(*_KEYS).agg(added.alias("bins"))
