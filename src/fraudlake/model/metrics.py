"""Metrics: the truth, predictions and scores become the metrics by which classifiers are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Flags = NDArray[np.bool_]


def metrics_of(fraud: Flags, predicted: Flags, scores: Floats, weights: Floats | None = None) -> dict[str, float]:
    """Compare predictions with the truth; a metric that is undefined is left out.

    ``true_prediction_rate`` is the accuracy, under the name that Databricks' article on Flink with Delta Lake gives it.
    It is close to 1 for any model if fraud is rare, so precision, recall, F1 and the area under the precision-recall
    curve are given as well.

    Args:
        fraud: whether a transaction is fraud.
        predicted: whether it is predicted.
        scores: the higher, the likelier fraud is.
        weights: the number of transactions that an entry means; by default 1.
    """
    weights = np.ones(len(fraud)) if weights is None else weights
    both, of_fraud, of_predicted = (float(weights @ mask) for mask in (fraud & predicted, fraud, predicted))
    total = float(weights.sum())
    figures = {
        "transactions": (total, 1.0),
        "fraud": (of_fraud, 1.0),
        "true_prediction_rate": (float(weights @ (fraud == predicted)), total),
        "precision": (both, of_predicted),
        "recall": (both, of_fraud),
        "f1": (2 * both, of_predicted + of_fraud),
        "area_under_pr": (area_under_pr(fraud, scores, weights) if of_fraud else 0.0, float(bool(of_fraud))),
    }
    return {name: value / of for name, (value, of) in figures.items() if of}


def area_under_pr(fraud: Flags, scores: Floats, weights: Floats) -> float:
    """Return the average precision: precision summed over the steps of recall, with equal scores as a single step."""
    order = np.argsort(-scores, kind="stable")
    is_last = np.append(np.diff(scores[order]) != 0, True)
    seen = np.cumsum(weights[order])[is_last]
    hits = np.cumsum((weights * fraud)[order])[is_last]
    return float(np.sum(hits / seen * np.diff(hits, prepend=0)) / hits[-1])
