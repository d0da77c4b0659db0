"""Metrics, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fraudlake.model.metrics import area_under_pr, metrics_of

NO, YES = False, True


def test_figures_of_five_transactions() -> None:
    fraud = np.array([YES, YES, NO, NO, YES])
    predicted = np.array([YES, YES, YES, NO, NO])
    assert metrics_of(fraud, predicted, np.array([0.9, 0.8, 0.7, 0.2, 0.1])) == pytest.approx(
        {
            "transactions": 5,
            "fraud": 3,
            "true_prediction_rate": 3 / 5,
            "precision": 2 / 3,
            "recall": 2 / 3,
            "f1": 2 / 3,
            "area_under_pr": (1 + 1 + 3 / 5) / 3,
        }
    )


def test_an_entry_that_stands_for_four_transactions_counts_four_times() -> None:
    figures = metrics_of(np.array([YES, NO]), np.array([YES, YES]), np.array([0.9, 0.8]), np.array([1.0, 4.0]))
    assert (figures["transactions"], figures["precision"]) == (5, 1 / 5)


@pytest.mark.parametrize(
    ("fraud", "predicted", "undefined"),
    [
        ([NO, NO], [NO, YES], {"recall", "area_under_pr"}),
        ([NO, YES], [NO, NO], {"precision"}),
        ([NO, NO], [NO, NO], {"precision", "recall", "f1", "area_under_pr"}),
    ],
    ids=["no fraud", "none predicted", "neither"],
)
def test_a_measure_that_is_undefined_is_left_out(fraud: list[bool], predicted: list[bool], undefined: set[str]) -> None:
    names = {"transactions", "fraud", "true_prediction_rate", "precision", "recall", "f1", "area_under_pr"}
    assert set(metrics_of(np.array(fraud), np.array(predicted), np.array([0.1, 0.2]))) == names - undefined


def test_equal_scores_are_one_step_of_the_curve() -> None:
    """Hits at ranks 1, 3 and 5 of five; the two in the middle have one score."""
    fraud = np.array([YES, NO, YES, NO, YES])
    area = area_under_pr(fraud, np.array([0.9, 0.5, 0.5, 0.3, 0.1]), np.ones(5))
    assert area == pytest.approx((1 / 1 + 2 / 3 + 3 / 5) / 3)
