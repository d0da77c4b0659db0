"""Explanations: states the main reasons for a prediction of fraud in words.

A feature's contribution to a score is its Shapley value: the contributions of all features add up to the log-odds of
fraud. Only contributions that raise the log-odds count as reasons.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fraudlake.feature import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fraudlake.model.classifier import Classifier

TOP = 3


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
        sentences: the sentences of the features, with a :data:`fraudlake.feature.PLACEHOLDER` for the value.
        texts: the values of text features.
    """
    parts = classifier.contributions(features)[:, :-1]
    strongest = np.argsort(-parts, axis=1, kind="stable")[:, :TOP]
    names = classifier.features
    forms = {name: _form(sentence) for name, sentence in sentences.items()}

    def sentence(row: int, at: int) -> str:
        name = names[at]
        template = sentences[name]
        form = forms[name]
        if name in texts:
            return template.replace(form, texts[name][row] or "missing")
        return f"{template.replace(form, _number(features[row, at], form))} (usually {_number(medians[name], form)})"

    return [[sentence(row, at) for at in columns if parts[row, at] > 0] for row, columns in enumerate(strongest)]


def _form(sentence: str) -> str:
    """Return the placeholder of a sentence."""
    return next(iter(re.findall(PLACEHOLDER, sentence)), "{}")


def _number(value: float, form: str) -> str:
    if math.isnan(value):
        return "missing"
    return f"{value:.2f}".rstrip("0").rstrip(".") if form == "{}" else form.format(value)
