"""Figures: draws the plots of a tested model that are logged with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fraudlake.model.classifier import Classifier
    from fraudlake.model.history import Rows


def figures(classifier: Classifier, rows: Rows) -> dict[str, Figure]:
    """Draw the precision-recall curve and the calibration on test rows, and the importance of the features.

    Returns:
        Figures by file name.
    """
    probability = classifier.probabilities(rows.matrix(classifier.features, classifier.encodings))
    step = np.floor(probability * 1000).astype(int)
    weights = (rows.weights, rows.weights * rows.fraud, rows.weights * probability)
    counts, fraud, expected = (np.bincount(step, weights=weight, minlength=1001) for weight in weights)
    occupied = np.flatnonzero(counts)[::-1]
    return {
        "pr_curve.png": _curve(counts[occupied], fraud[occupied]),
        "calibration.png": _calibration(occupied, counts[occupied], fraud[occupied], expected[occupied]),
        "feature_importance.png": _importance(classifier),
    }


def _axes(title: str, across: str, up: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    # pyplot would keep a reference to the figure and look for a screen.
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=across, ylabel=up)
    return figure, axes


def _curve(rows: Any, fraud: Any) -> Figure:
    figure, axes = _axes("Precision and recall, test rows", "recall", "precision")
    axes.step(np.cumsum(fraud) / fraud.sum(), np.cumsum(fraud) / np.cumsum(rows), where="post")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    return figure


def _calibration(step: Any, rows: Any, fraud: Any, expected: Any) -> Figure:
    figure, axes = _axes("Calibration, test rows", "mean probability", "share of fraud")
    tenth = np.minimum(step // 100, 9).astype(int)
    counts, frauds, sums = (np.bincount(tenth, weights=weight, minlength=10) for weight in (rows, fraud, expected))
    occupied = counts > 0
    axes.plot([0, 1], [0, 1], linestyle=":", color="grey")
    axes.plot(sums[occupied] / counts[occupied], frauds[occupied] / counts[occupied], marker="o")
    return figure


def _importance(classifier: Classifier) -> Figure:
    importance = classifier.importance
    figure, axes = _axes("Importance of the features", "share", "")
    order = np.argsort(importance)
    axes.barh([classifier.features[at] for at in order], importance[order])
    return figure
