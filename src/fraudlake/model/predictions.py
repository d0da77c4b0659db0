"""Predictions: scores transactions from their features, in the columns of ``gold_fraud_predictions``.

The model is sent to Spark's tasks as bytes, and each Arrow batch is scored and explained there. So no function has to
be registered, and scoring works in whatever session a micro-batch brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fraudlake import tables
from fraudlake.feature import OWN
from fraudlake.features import lake_features
from fraudlake.model import explanations
from fraudlake.model.classifier import Classifier

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.feature import Feature
    from fraudlake.model.published import Model

_Batches = Iterator[pa.RecordBatch]


def scorer(
    model: Model,
    wanted: float | str,
    scored_from: str,
    scored_at: datetime,
    declared: Sequence[tuple[Feature, str]] = (),
    alerted_from: float = 1.0,
) -> Callable[[_Batches], _Batches]:
    """Return a function from Arrow batches of :func:`account_features.computed_columns`, packed or not, to predictions.

    Predictions have the columns of ``gold_fraud_predictions``, with those of declared features. ``prediction`` is true
    if the probability reaches the threshold ``wanted``, a probability or a budget. These rows have ``reasons``
    (:mod:`explanations`), and so have rows that raise alerts, from the probability ``alerted_from`` on. ``declared``
    are the lake's declared features with their types.

    Raises:
        FraudlakeError: the threshold is a budget, and the version has no budget curve.
    """
    stored = model.stored
    threshold = model.threshold(wanted)
    schema = tables.with_declared(tables.GOLD_FRAUD_PREDICTIONS, {}, declared).schema
    sentences = {feature.name: feature.sentence for feature in (*OWN, *(feature for feature, _ in declared))}
    medians = {name: float(shape["median"]) for name, shape in model.profile["shapes"].items()}
    constants = {"model_version": model.number, "scored_from": scored_from, "scored_at": scored_at}

    def score(batches: _Batches) -> _Batches:
        classifier = Classifier.from_bytes(stored)
        for batch in lake_features.opened(batches):
            scored = _scored(batch, classifier, medians, sentences, threshold, alerted_from)
            constant_columns = {
                name: pa.repeat(pa.scalar(value, schema.field(name).type), batch.num_rows)
                for name, value in constants.items()
            }
            columns = {name: batch.column(name) for name in batch.schema.names} | scored | constant_columns
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    return score


def _scored(
    batch: pa.RecordBatch,
    classifier: Classifier,
    medians: dict[str, float],
    sentences: dict[str, str],
    threshold: float,
    alerted_from: float,
) -> dict[str, pa.Array]:
    """Return ``probability``, ``prediction`` and ``reasons`` of a batch's rows."""
    matrix = np.column_stack([_numbers(batch.column(name), classifier, name) for name in classifier.features])
    probability = classifier.probabilities(matrix)
    predicted = probability >= threshold
    reasons: list[list[str] | None] = [None] * batch.num_rows
    flagged = np.flatnonzero(probability >= min(threshold, alerted_from))
    if len(flagged):
        texts = {name: batch.column(name).take(pa.array(flagged)).to_pylist() for name in classifier.encodings}
        explained = explanations.reasons(classifier, matrix[flagged], medians, sentences, texts)
        for row, of_row in zip(flagged, explained, strict=True):
            reasons[row] = of_row
    return {
        "probability": pa.array(probability),
        "prediction": pa.array(predicted),
        "reasons": pa.array(reasons, pa.list_(pa.field("element", pa.string()))),
    }


def _numbers(column: pa.Array, classifier: Classifier, name: str) -> NDArray[Any]:
    """Return a feature as numbers; NaN is missing."""
    encoding = classifier.encodings.get(name)
    numbers: NDArray[Any]
    if encoding is None:
        numbers = column.to_numpy(zero_copy_only=False)
    else:
        encoded = column.dictionary_encode(null_encoding="encode")
        of_texts = np.array([encoding.encode(text) for text in encoded.dictionary.to_pylist()])
        numbers = of_texts[encoded.indices.to_numpy()]
    return numbers
