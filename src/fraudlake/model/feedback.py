"""Feedback: joins a classifier with a second one, of the verdicts on transactions whose other labels are not known yet.

With chargebacks, the labels of all transactions are known after ``genuine_after`` only, and a new kind of fraud is
learned as late as that. Verdicts are known earlier, but on transactions that a model or a rule chose. Learned together
with all others they are lost among them, so a classifier of its own learns from them (Dal Pozzolo, Boracchi, Caelen,
Alippi and Bontempi, "Credit Card Fraud Detection and Concept-Drift Adaptation with Delayed Supervised Information",
IJCNN 2015). ``benchmarks/feedback.py`` compares the ways.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fraudlake.model import search
from fraudlake.model.metrics import area_under_pr
from fraudlake.text.counts import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fraudlake.model.classifier import Classifier, Encoding
    from fraudlake.model.history import History, Rows
    from fraudlake.settings import Settings

_HOLDOUT = 0.3
"""The share of the verdicts, the latest, that the choice of the second classifier's candidate does not see."""


@dataclass(frozen=True)
class Joined:
    """The outcome of a search, its classifiers joined with those of feedback if that helps, and a sentence about it.

    ``feedback`` has the rows that the second classifier learned from for the test; it is empty without one.
    """

    fitted: search.Fitted
    feedback: tuple[Rows, ...] = ()
    reason: str = ""


def has_both_kinds(rows: Rows) -> bool:
    """Return whether there are enough frauds and others for each part of a search."""
    try:
        search.split(rows, _HOLDOUT)
    except search.TooLittleError:
        return False
    return True


def young(past: History, settings: Settings) -> Rows:
    """Return the rows with verdicts that are younger than ``genuine_after`` at the end of a history."""
    return past.reviewed(past.span[1] - settings.genuine_after, None)


def join(past: History, labelled: Rows, cut: search.Split, fitted: search.Fitted, settings: Settings) -> Joined:
    """Join the classifiers of a search with second ones, unless that is worse on the test part.

    The classifier that is tested learns feedback as it was known when the test part begins, and the final one as it is
    known now. Without a gap before the test part, or with few verdicts in it, nothing is joined.
    """
    reviewed = past.reviewed(cut.validated_until, cut.tested_from)
    if not has_both_kinds(reviewed):  # nor if there is no gap
        return Joined(fitted)
    latest = young(past, settings)
    encodings = fitted.classifier.encodings
    classifier = replace(fitted.classifier, feedback=_learned(reviewed, settings, encodings))
    test_rows = labelled.between(cut.tested_from, None)
    alone, both = (_area(one, test_rows) for one in (fitted.classifier, classifier))
    learned = f"a second classifier of {counted(len(latest.time), 'verdict')} on younger transactions"
    areas = f"area under PR {both:.3f} with it, {alone:.3f} without"
    # Within a standard error it joins: it is for the kinds of fraud that are younger than the test part.
    if search.simplest([both, alone], int(test_rows.fraud.sum())) == 1:
        return Joined(fitted, reason=f"{learned} is left out: {areas}")
    final = replace(fitted.final, feedback=_learned(latest, settings, encodings))
    return Joined(replace(fitted, classifier=classifier, final=final), (reviewed,), f"{learned} joins: {areas}")


def _learned(rows: Rows, settings: Settings, encodings: Mapping[str, Encoding]) -> Classifier:
    cut = search.split(rows, _HOLDOUT)
    return replace(search.search(rows, cut, settings.algorithm, encodings=encodings).final, encodings={})


def _area(classifier: Classifier, rows: Rows) -> float:
    features = rows.matrix(classifier.features, classifier.encodings)
    return area_under_pr(rows.fraud == 1, classifier.log_odds(features), rows.weights)
