"""Explanations: a prediction of fraud gets its top reasons in words.

A feature's contribution to a score is its Shapley value: the contributions of all features add up to the log-odds of
fraud. Only contributions that raise the log-odds count as reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fraudlake.model.classifier import Classifier

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


def reasons(classifier: Classifier, features: NDArray[Any], medians: Mapping[str, float]) -> list[list[str]]:
    """Explain why each row looks like fraud, in up to three sentences, the strongest reason first.

    A reason names the feature's value and, in brackets, its usual value.

    Args:
        classifier: the classifier that scored the rows.
        features: the rows, in the classifier's order of features.
        medians: the usual value of each feature.
    """
    parts = classifier.contributions(features)[:, :-1]
    strongest = np.argsort(-parts, axis=1, kind="stable")[:, :TOP]
    names = classifier.features
    return [
        [_sentence(names[at], features[row, at], medians[names[at]]) for at in columns if parts[row, at] > 0]
        for row, columns in enumerate(strongest)
    ]


def _sentence(name: str, value: float, median: float) -> str:
    words = WORDS[name]
    number = words[words.index("%") :].split()[0]
    return f"{words % value} (usually {number % median})"
