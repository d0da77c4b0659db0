"""The search: chooses a classifier from a few candidates, on a labelled history that is split by time.

A history is never split at random. Candidates are fitted on its first part, one is chosen and calibrated on the second
part, and tested on the latest part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fraudlake.errors import FraudlakeError
from fraudlake.model import budget, history
from fraudlake.model.classifier import Classifier, Encoding, Logistic, Trees
from fraudlake.model.metrics import LabelledScores, area_under_pr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fraudlake.model.history import Rows
    from fraudlake.settings import Settings

    Floats = NDArray[np.floating[Any]]

PARTS = ("fitted", "validated", "tested")
LEAST = 10
"""The number of frauds, and of other transactions, that each part of a history must have."""

_DAY = 86_400_000_000
_VALIDATION = 0.2
"""The share of the rows before the test part on which the best candidate is chosen and calibrated."""

Progress = Callable[[int, int, str], None]
"""Called with the number of candidates fitted so far, the total number, and a description of the next step."""


class TooLittleError(FraudlakeError):
    """A part of the history has too few frauds or too few other transactions."""


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its size: a number of gradient-boosted trees, or a logistic regression."""

    algorithm: Literal["trees", "logistic"]
    leaves: int = 0
    trees: int = 0

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.trees} trees of {self.leaves} leaves" if self.trees else "logistic regression"

    def fit(self, rows: Rows) -> Trees | Logistic:
        """Learn from rows."""
        if self.algorithm == "logistic":
            return Logistic.fit(rows.features, rows.fraud, rows.balanced, penalty=1e-4)
        return Trees.fit(rows.binned, self.leaves, self.trees)


BASELINE = Candidate("logistic")
SEARCH = {"trees": (Candidate("trees", 8, 60), Candidate("trees", 31, 60)), "logistic": ()}
"""The candidates in addition to the baseline, the simplest first, by the setting ``algorithm``."""


@dataclass(frozen=True)
class Fitted:
    """The outcome of a search: the chosen classifier, the baseline's, and the area under PR of each candidate.

    ``classifier`` has not seen the test part. ``final`` is the same candidate, fitted on the whole history.
    """

    classifier: Classifier
    final: Classifier
    candidate: Candidate
    baseline: Classifier
    areas: dict[str, float]


@dataclass(frozen=True)
class Part:
    """A part of a history: numbers of rows and of frauds, and its first and last time (UTC)."""

    rows: int
    fraud: int
    first: datetime
    last: datetime


@dataclass(frozen=True)
class Split:
    """The times (UTC) at which a history is split, and its :data:`PARTS`."""

    validated_from: datetime
    tested_from: datetime
    parts: dict[str, Part]

    def __str__(self) -> str:
        """Describe for people which rows each part has."""
        return ", ".join(
            f"{name} on {part.rows:,} rows ({part.fraud:,} fraud) of {part.first:%Y-%m-%d %H:%M} to "
            f"{part.last:%Y-%m-%d %H:%M}"
            for name, part in self.parts.items()
        )


def split(labelled: Rows, holdout: float) -> Split:
    """Split a labelled history by time; the latest ``holdout`` of its rows is the test part.

    Raises:
        TooLittleError: a part has too few frauds or too few other transactions.
    """
    if not len(labelled.time):
        raise TooLittleError(
            "cannot train: no transaction has a label that is known by now: run 'ingest' and 'refine' first, or change "
            "--label-delay, --genuine-after or --train-from"
        )
    shares = ((1 - holdout) * (1 - _VALIDATION), 1 - holdout)
    cuts = quantiles(labelled.time, labelled.weights, shares)
    is_before = labelled.time < cuts[1]
    if cuts[0] == cuts[1] and is_before.any():
        # Both cuts fall on one instant with many rows: split the rows before it.
        cuts[:1] = quantiles(labelled.time[is_before], labelled.weights[is_before], (1 - _VALIDATION,))
    times = [history.from_micros(int(at)) for at in cuts]
    parts = {}
    for name, begin, end in zip(PARTS, (None, *times), (*times, None), strict=True):
        rows = labelled.between(begin, end)
        fraud = int(rows.fraud.sum())
        if not LEAST <= fraud <= len(rows.fraud) - LEAST:
            labels = "--labels chargebacks, for frauds alone" if labelled.fraud.all() else "--labels"
            raise TooLittleError(
                f"cannot train: of the {len(rows.fraud):,} labelled transactions that a model is {name} on {fraud:,} "
                f"are fraud, and {LEAST} of both kinds are needed: land more transactions, or change --holdout or "
                f"{labels}"
            )
        first, last = (history.from_micros(int(at)) for at in (rows.time.min(), rows.time.max()))
        parts[name] = Part(len(rows.fraud), fraud, first, last)
    return Split(times[0], times[1], parts)


def quantiles(values: NDArray[Any], weights: Floats, shares: tuple[float, ...]) -> NDArray[Any]:
    """Return the weighted quantiles: for each share, the smallest value up to which the weights reach this share."""
    # With equal weights a partition is enough; sorting millions of values takes ten times as long.
    is_equal = weights.min() == weights.max()
    order = np.arange(len(values)) if is_equal else np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(total, np.array(shares) * total[-1]), len(order) - 1)
    chosen: NDArray[Any] = np.partition(values, at)[at] if is_equal else values[order[at]]
    return chosen


def search(labelled: Rows, cut: Split, algorithm: str, progress: Progress = lambda *_: None) -> Fitted:
    """Fit the candidates on the first part of a history, and choose and calibrate the best on the second.

    The chosen candidate is the :func:`simplest` of those that are as good as the best. It is fitted once more on all
    rows, since the latest rows are the most informative. Its calibration stays, as no rows are left for a new one.
    """
    first = labelled.between(None, cut.validated_from)
    second = labelled.between(cut.validated_from, cut.tested_from)
    encodings = encodings_of(first)
    first, second, labelled = (
        replace(part, features=part.matrix(part.names, encodings)) for part in (first, second, labelled)
    )
    candidates = (BASELINE, *SEARCH[algorithm])
    tried: list[tuple[float, Candidate, Classifier]] = []
    for number, candidate in enumerate(candidates):
        progress(number, len(candidates), str(candidate))
        learned = candidate.fit(first)
        classifier = Classifier.calibrated(
            first.names, learned, second.features, second.fraud, second.weights, encodings
        )
        area = area_under_pr(second.fraud == 1, classifier.log_odds(second.features), second.weights)
        tried.append((area, candidate, classifier))
    progress(len(candidates), len(candidates), "testing")
    rivals = tried[1:] or tried
    _, best, classifier = rivals[simplest([area for area, *_ in rivals], int(second.fraud.sum()))]
    final = replace(classifier, learned=best.fit(labelled))
    return Fitted(classifier, final, best, tried[0][2], {str(candidate): area for area, candidate, _ in tried})


def encodings_of(rows: Rows) -> dict[str, Encoding]:
    """Fit what turns the texts of each text feature into numbers."""
    return {
        name: Encoding.fit(texts, rows.features[:, rows.names.index(name)].astype(int), rows.fraud, rows.weights)
        for name, texts in rows.texts.items()
    }


def simplest(areas: list[float], frauds: int) -> int:
    """Return the number of the first candidate whose area is within a standard error of the best.

    Few frauds cannot tell candidates apart, and then the simplest overfits least. The error is that of a proportion of
    so many frauds (Boyd, Eng and Page 2013, "Area under the Precision-Recall Curve").

    Args:
        areas: the area under PR of each candidate, the simplest first.
        frauds: the number of frauds that they were computed on.
    """
    best = max(areas)
    error = (best * (1 - best) / frauds) ** 0.5
    return next(number for number, area in enumerate(areas) if area >= best - error)


def scored(classifier: Classifier, rows: Rows, settings: Settings) -> LabelledScores:
    """Score rows. A threshold that is a budget becomes a probability on the same rows."""
    probability = classifier.probabilities(rows.matrix(classifier.features, classifier.encodings))
    known = budget.curve(rows, probability) if isinstance(settings.threshold, str) else []
    predicted = probability >= budget.threshold(settings.threshold, known)
    days = rows.time // _DAY
    return LabelledScores(rows.fraud == 1, predicted, probability, rows.amount, rows.account, days, rows.weights)
