"""Explanations: a prediction of fraud gets its top reasons in words.

A feature's contribution to a score is its Shapley value: the contributions of all features add up to the log-odds of
fraud. Only contributions that raise the log-odds count as reasons.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fraudlake.model.classifier import Classifier
    from fraudlake.settings.features import Feature

TOP = 3

WORDS = {
    "amount": "the amount is %.2f",
    "hour_of_day": "it is in hour %.0f of the day (UTC)",
    "previous_amount": "the account's payment before it was %.2f",
    "seconds_since_previous": "it comes %.1f s after the account's payment before it",
    "count_minute": "the account made %.0f payments in the minute before it",
    "sum_minute": "the account paid %.2f in the minute before it",
    "count_hour": "the account made %.0f payments in the hour before it",
    "sum_hour": "the account paid %.2f in the hour before it",
    "count_day": "the account made %.0f payments in the day before it",
    "sum_day": "the account paid %.2f in the day before it",
    "amount_to_usual": "the amount is %.1f times the account's usual amount",
    "hours_from_usual": "it is %.1f hours from the account's usual time of day",
}


def declared(features: Iterable[Feature]) -> dict[str, str]:
    """Return the sentences of declared features, with ``{}`` for the value."""
    return {feature.name: feature.text or f"the {feature.meaning} is {{}}" for feature in features}


def reasons(
    classifier: Classifier,
    features: NDArray[Any],
    medians: Mapping[str, float],
    sentences: Mapping[str, str],
    texts: Mapping[str, Sequence[str | None]],
) -> list[list[str]]:
    """Explain why each row looks like fraud, in up to three sentences, the strongest reason first.

    A reason names the feature's value and, in brackets, its usual value.

    Args:
        classifier: the classifier that scored the rows.
        features: the rows, in the classifier's order of features.
        medians: the usual value of each feature.
        sentences: those of declared features, from :func:`declared`.
        texts: the values of features that are texts.
    """
    parts = classifier.contributions(features)[:, :-1]
    strongest = np.argsort(-parts, axis=1, kind="stable")[:, :TOP]
    names = classifier.features

    def sentence(row: int, at: int) -> str:
        name = names[at]
        if name in texts:
            return sentences[name].format(texts[name][row] or "missing")
        return _sentence(name, features[row, at], medians[name], sentences)

    return [[sentence(row, at) for at in columns if parts[row, at] > 0] for row, columns in enumerate(strongest)]


def _sentence(name: str, value: float, median: float, sentences: Mapping[str, str]) -> str:
    if name in sentences:
        usual = f" (usually {_number(median)})"
        return sentences[name].format("missing" if math.isnan(value) else _number(value)) + usual
    words = WORDS[name]
    number = words[words.index("%") :].split()[0]
    return f"{words % value} (usually {number % median})"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
