"""Figures: a judged model's scores become the plots that are kept with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F

from fraudlake.gold import features

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame


def figures(scored: DataFrame, pipeline: Any) -> dict[str, Figure]:
    """Draw the precision-recall curve, the calibration and, where the model has it, the importance of the features.

    Args:
        scored: held-out rows with ``probability`` and ``fraud`` (0.0 or 1.0).
        pipeline: the model that scored them.

    Returns:
        Figures by file name.
    """
    steps = F.floor(F.col("probability") * 1000).cast("int")
    counted = scored.groupBy(steps.alias("step")).agg(
        F.count("*").alias("rows"), F.sum("fraud").alias("fraud"), F.sum("probability").alias("expected")
    )
    found = np.array([tuple(row) for row in counted.orderBy(F.desc("step")).collect()], dtype=float)
    step, rows, fraud, expected = found.T
    drawn = {"pr_curve.png": _curve(rows, fraud), "calibration.png": _calibration(step, rows, fraud, expected)}
    for stage in pipeline.stages:
        if hasattr(stage, "featureImportances"):
            drawn["feature_importance.png"] = _importance(stage.featureImportances.toArray())
    return drawn


def _axes(title: str, across: str, up: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    # A figure of its own: pyplot would keep it, and look for a screen.
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=across, ylabel=up)
    return figure, axes


def _curve(rows: Any, fraud: Any) -> Figure:
    figure, axes = _axes("Precision and recall, held-out rows", "recall", "precision")
    axes.step(np.cumsum(fraud) / fraud.sum(), np.cumsum(fraud) / np.cumsum(rows), where="post")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _calibration(step: Any, rows: Any, fraud: Any, expected: Any) -> Figure:
    figure, axes = _axes("Calibration, held-out rows", "mean probability", "share of fraud")
    tenth = np.minimum(step // 100, 9).astype(int)
    counts, frauds, sums = (np.bincount(tenth, weights=one, minlength=10) for one in (rows, fraud, expected))
    some = counts > 0
    axes.plot([0, 1], [0, 1], linestyle=":", color="grey")
    axes.plot(sums[some] / counts[some], frauds[some] / counts[some], marker="o")
    return figure


def _importance(importance: Any) -> Figure:
    figure, axes = _axes("Importance of the features", "share of the trees' gain", "")
    order = np.argsort(importance)
    axes.barh([features.NAMES[at] for at in order], importance[order])
    return figure
