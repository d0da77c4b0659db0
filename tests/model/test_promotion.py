"""What decides promotion: figures of eight scored transactions, counted by hand. No model is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fraudlake.model import metrics, promotion
from fraudlake.settings import load

FRAUD = np.array([1, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
OLD = [0.9, 0.6, 0.2, 0.8, 0.7, 0.3, 0.1, 0.1]
"""Ranks of the fraud: 1, 4 and 6. Of the two alerts of the budget, one is right."""


def figures(scores: list[float], threshold: float = 0.5, budget: int = 2) -> dict[str, float]:
    """The figures of a version that gives these scores to transactions of one day, each of another account."""
    probability, accounts = np.array(scores), np.arange(8)
    amounts, days, weights = np.full(8, 10.0), np.zeros(8, dtype=np.int64), np.ones(8)
    judged = metrics.LabelledScores(FRAUD, probability >= threshold, probability, amounts, accounts, days, weights)
    return metrics.measure_all(judged, metrics.Budget(budget))


def beats(old: dict[str, float], new: dict[str, float], **settings: Any) -> bool:
    return promotion.compared("1", old, "2", new, load(**settings))[0]


def test_the_figures_are_those_that_one_counts() -> None:
    old = figures(OLD)
    assert (old["precision_at_budget"], old["recall_at_budget"]) == (1 / 2, 1 / 3)
    assert old["area_under_pr"] == pytest.approx((1 / 1 + 2 / 4 + 3 / 6) / 3)
    assert old["true_prediction_rate"] == 5 / 8


def test_a_version_that_ranks_fraud_higher_takes_over() -> None:
    new = figures([0.9, 0.85, 0.2, 0.8, 0.7, 0.3, 0.1, 0.1])  # ranks 1, 2 and 6
    is_better, reason = promotion.compared("1", figures(OLD), "2", new, load())
    assert is_better
    assert reason == (
        "version 2 beats version 1 (area under PR 0.8333 against 0.6667, to be higher by 0.005; "
        "precision at budget 1.0000 against 0.5000, not to be lower; "
        "recall at budget 0.6667 against 0.3333, not to be lower)"
    )


def test_accuracy_decides_nothing() -> None:
    old, new = figures(OLD), figures(OLD, threshold=0.85)  # the same ranks; it predicts less
    assert new["true_prediction_rate"] == 6 / 8 > old["true_prediction_rate"]
    assert not beats(old, new) and not beats(new, old)
    assert beats(new, figures([0.9, 0.85, 0.84, 0.83, 0.82, 0.81, 0.8, 0.8], threshold=0.0))  # it predicts all: 3 of 8


def test_a_lead_below_the_budget_is_none() -> None:
    """Ranks 2, 3 and 4: a larger area, and as many found in the alerts of the budget; then ranks 3, 4 and 5: none."""
    old = figures([0.9, 0.3, 0.2, 0.8, 0.7, 0.6, 0.5, 0.4])  # ranks 1, 7 and 8
    held = figures([0.8, 0.7, 0.6, 0.9, 0.3, 0.2, 0.1, 0.1])
    lost = figures([0.7, 0.6, 0.5, 0.9, 0.8, 0.2, 0.1, 0.1])
    assert old["area_under_pr"] == pytest.approx((1 / 1 + 2 / 7 + 3 / 8) / 3)
    assert held["area_under_pr"] == pytest.approx((1 / 2 + 2 / 3 + 3 / 4) / 3)
    assert lost["area_under_pr"] == pytest.approx((1 / 3 + 2 / 4 + 3 / 5) / 3)
    assert beats(old, held)
    assert lost["precision_at_budget"] == 0 < old["precision_at_budget"]
    assert not beats(old, lost, promotion_margin=0.0) and not beats({**old, "area_under_pr": 0.1}, lost)


def test_a_lead_below_the_margin_is_none() -> None:
    old = figures(OLD)
    new = {**old, "area_under_pr": old["area_under_pr"] + 0.01}
    assert beats(old, new, promotion_margin=0.01) and not beats(old, new, promotion_margin=0.02)


@pytest.mark.parametrize("metric", ["precision_at_budget", "recall_at_budget"])
def test_the_figure_that_a_setting_names_decides_alone(metric: str) -> None:
    old, new = figures(OLD), {**figures(OLD), metric: 0.9, "area_under_pr": 0.0}
    assert beats(old, new, promotion_metric=metric) and not beats(old, new)


def test_the_margin_of_an_amount_is_a_share_of_it() -> None:
    settings = {"promotion_metric": "amount_saved", "promotion_margin": 0.1}
    assert beats({"amount_saved": -100.0}, {"amount_saved": -90.0}, **settings)
    assert not beats({"amount_saved": 100.0}, {"amount_saved": 109.0}, **settings)


def test_an_undefined_figure_counts_as_none() -> None:
    assert beats({}, figures(OLD)) and not beats(figures(OLD), {})
