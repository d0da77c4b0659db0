"""The search: chooses a classifier from a few candidates, on a labelled history that is split by time.

A history is never split at random. Candidates are fitted on its first part, one is chosen and calibrated on the second
part, and tested on the latest part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fraudlake.errors import FraudlakeError
from fraudlake.model import budget, history
from fraudlake.model.classifier import Classifier, Encoding, Logistic, Trees
from fraudlake.model.metrics import LabelledScores, area_under_pr
from fraudlake.times.durations import microseconds

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

    def stopping(self, action: str) -> FraudlakeError:
        """Return the error of a command that needs such a history to do something else than to train."""
        return FraudlakeError(str(self).replace("cannot train", f"cannot {action}"))


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
    """The times (UTC) at which a history is split, and its :data:`PARTS`.

    The part that is validated on ends at ``validated_until``, which is earlier than ``tested_from`` if labels that were
    not known at that time are left out.
    """

    validated_from: datetime
    validated_until: datetime
    tested_from: datetime
    parts: dict[str, Part]

    def __str__(self) -> str:
        """Describe for people which rows each part has."""
        return ", ".join(
            f"{name} on {part.rows:,} rows ({part.fraud:,} fraud) of {part.first:%Y-%m-%d %H:%M} to "
            f"{part.last:%Y-%m-%d %H:%M}"
            for name, part in self.parts.items()
        )


def split(labelled: Rows, holdout: float, gap: timedelta = timedelta(0)) -> Split:
    """Split a labelled history by time; the latest ``holdout`` of its rows is the test part.

    Args:
        labelled: the history.
        holdout: the share of its rows.
        gap: a time before the test part whose rows belong to no part.

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
    is_before = labelled.time < cuts[1] - microseconds(gap)
    if (gap or cuts[0] == cuts[1]) and is_before.any():
        # With a gap, or if both cuts fall on one instant with many rows: split the rows before.
        cuts[:1] = quantiles(labelled.time[is_before], labelled.weights[is_before], (1 - _VALIDATION,))
    validated_from, tested_from = (history.from_micros(int(at)) for at in cuts)
    validated_until = tested_from - gap
    spans = ((None, validated_from), (validated_from, validated_until), (tested_from, None))
    parts = {}
    for name, (begin, end) in zip(PARTS, spans, strict=True):
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
    return Split(validated_from, validated_until, tested_from, parts)


def quantiles(values: NDArray[Any], weights: Floats, shares: tuple[float, ...]) -> NDArray[Any]:
    """Return the weighted quantiles: for each share, the smallest value up to which the weights reach this share."""
    # With equal weights a partition is enough; sorting millions of values takes ten times as long.
    is_equal = weights.min() == weights.max()
    order = np.arange(len(values)) if is_equal else np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    at = np.minimum(np.searchsorted(total, np.array(shares) * total[-1]), len(order) - 1)
    chosen: NDArray[Any] = np.partition(values, at)[at] if is_equal else values[order[at]]
    return chosen


def search(
    labelled: Rows,
    cut: Split,
    algorithm: str,
    progress: Progress = lambda *_: None,
    encodings: Mapping[str, Encoding] | None = None,
) -> Fitted:
    """Fit the candidates on the first part of a history, and choose and calibrate the best on the second.

    The chosen candidate is the :func:`simplest` of those that are as good as the best. It is fitted once more on all
    rows, since the latest rows are the most informative. Its calibration stays, as no rows are left for a new one.
    The encodings of texts are learned from the first part, unless they are given.
    """
    first = labelled.between(None, cut.validated_from)
    second = labelled.between(cut.validated_from, cut.validated_until)
    encodings = dict(encodings_of(first) if encodings is None else encodings)
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

    Few frauds cannot tell candidates apart, and then the simplest overfits least. The error is that of a proportion in
    ``frauds`` trials (Boyd, Eng and Page 2013, "Area under the Precision-Recall Curve").

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
    curve = budget.curve(rows, probability) if isinstance(settings.threshold, str) else []
    predicted = probability >= budget.threshold(settings.threshold, curve)
    days = rows.time // _DAY
    return LabelledScores(rows.fraud == 1, predicted, probability, rows.amount, rows.account, days, rows.weights)
