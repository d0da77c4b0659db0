"""Predictions: transactions with their features become rows of ``gold_fraud_predictions``.

The model travels to Spark's tasks as bytes, and each Arrow batch is scored and explained there. So no function has to
be registered in a session, and scoring works in any session that a micro-batch comes with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fraudlake import tables
from fraudlake.model import explanations, features
from fraudlake.model.classifier import Classifier

if TYPE_CHECKING:
    from fraudlake.model.published import Model

_Batches = Iterator[pa.RecordBatch]
SCHEMA = tables.GOLD_FRAUD_PREDICTIONS.schema
"""The columns of ``gold_fraud_predictions``."""


def scorer(model: Model, wanted: float | str, scored_from: str, scored_at: datetime) -> Callable[[_Batches], _Batches]:
    """Return a function from Arrow batches of :data:`features.COMPUTED`, packed or not, to batches of :data:`SCHEMA`.

    ``prediction`` is true if the probability reaches the threshold, a probability or a budget; these rows have
    ``reasons`` (:mod:`explanations`).

    Raises:
        FraudlakeError: it is a budget, and the version knows none.
    """
    stored, threshold = model.stored, model.threshold(wanted)
    medians = {name: float(shape["median"]) for name, shape in model.profile["shapes"].items()}
    constants = {"model_version": model.number, "scored_from": scored_from, "scored_at": scored_at}

    def score(batches: _Batches) -> _Batches:
        classifier = Classifier.from_bytes(stored)
        for batch in features.opened(batches):
            scored = _scored(batch, classifier, medians, threshold)
            constant_columns = {
                name: pa.repeat(pa.scalar(value, SCHEMA.field(name).type), batch.num_rows)
                for name, value in constants.items()
            }
            columns = {name: batch.column(name) for name in batch.schema.names} | scored | constant_columns
            yield pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    return score


def _scored(
    batch: pa.RecordBatch, classifier: Classifier, medians: dict[str, float], threshold: float
) -> dict[str, pa.Array]:
    """Return ``probability``, ``prediction`` and ``reasons`` of a batch's rows."""
    matrix = np.column_stack([batch.column(name).to_numpy() for name in classifier.features])
    probability = classifier.probabilities(matrix)
    predicted = probability >= threshold
    reasons: list[list[str] | None] = [None] * batch.num_rows
    flagged = np.flatnonzero(predicted)
    if len(flagged):
        for row, sentences in zip(flagged, explanations.reasons(classifier, matrix[flagged], medians), strict=True):
            reasons[row] = sentences
    return {
        "probability": pa.array(probability),
        "prediction": pa.array(predicted),
        "reasons": pa.array(reasons, SCHEMA.field("reasons").type),
    }
