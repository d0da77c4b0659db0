"""Metrics, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fraudlake.model.metrics import (
    Budget,
    LabelledScores,
    area_under_pr,
    area_under_roc,
    estimated,
    measure_budget,
    metrics_of,
)

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


def test_amounts_at_the_edge_of_what_a_double_holds_are_bounded_in_what_is_saved() -> None:
    one = np.ones(3, bool)
    amounts, ids = np.array([1.7e308, 1.7e308, 5.0]), np.arange(3)
    rows = LabelledScores(
        one, one, np.array([0.9, 0.8, 0.7]), amounts, ids, np.zeros(3, int), np.array([1.0, 1000.0, 1.0])
    )
    assert measure_budget(rows, Budget(cost=1.0))["amount_saved"] == 1e12 + 1000e12 + 5.0 - 1002.0
    refunds = replace(rows, amounts=-amounts)
    assert measure_budget(refunds, Budget(cost=1.0))["amount_saved"] == -1e12 - 1000e12 - 5.0 - 1002.0


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


def test_areas_are_those_of_scikit_learn() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(4)
    for ties in (1, 7, 1000):
        fraud, scores = draw.random(500) < 0.2, draw.integers(0, ties, 500) / ties
        weights = draw.integers(1, 4, 500).astype(float)
        assert area_under_pr(fraud, scores, weights) == pytest.approx(
            sklearn.average_precision_score(fraud, scores, sample_weight=weights)
        )
        assert area_under_roc(fraud, scores, weights) == pytest.approx(
            sklearn.roc_auc_score(fraud, scores, sample_weight=weights)
        )


def judged(*rows: tuple[int, int, float, bool], weights: float = 1.0, threshold: float = 0.5) -> LabelledScores:
    """Transactions of 10.00: account, day, score, and whether it is fraud."""
    accounts, days, scores, fraud = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    return LabelledScores(
        fraud, scores >= threshold, scores, np.full(count, 10.0), accounts, days, np.full(count, weights)
    )


DAYS = judged(
    # Day 1, by account: 7 (0.9, compromised by another transaction), 8 (0.8, honest), 9 (0.3, compromised).
    (7, 1, 0.9, NO),
    (7, 1, 0.1, YES),
    (8, 1, 0.8, NO),
    (8, 1, 0.7, NO),
    (9, 1, 0.3, YES),
    # Day 2: 7 was found on day 1 and is left out; 8 (0.6, compromised), 9 (0.5, compromised), 6 (0.4, honest).
    (7, 2, 0.95, YES),
    (8, 2, 0.6, YES),
    (9, 2, 0.5, YES),
    (6, 2, 0.4, NO),
)


def test_accounts_are_looked_at_by_their_highest_score_and_once_found_not_again() -> None:
    figures = measure_budget(DAYS, Budget(2))
    # Day 1: 7 and 8 are looked at; day 2: 8 and 9. Compromised: 7 and 9, then 8 and 9.
    assert (figures["card_precision"], figures["card_recall"]) == (3 / 4, 3 / 4)


def test_alerts_are_the_transactions_with_the_highest_scores_of_each_day() -> None:
    figures = measure_budget(DAYS, Budget(2))
    # Day 1: 0.9 and 0.8, both honest; day 2: 0.95 and 0.6, both fraud. There are five frauds.
    assert (figures["precision_at_budget"], figures["recall_at_budget"]) == (2 / 4, 2 / 5)
    assert measure_budget(DAYS, Budget(100))["recall_at_budget"] == 1


def test_the_amount_saved_is_that_of_predicted_fraud_less_the_cost_of_all_predictions() -> None:
    # Six transactions reach 0.5, three of them are fraud.
    assert measure_budget(DAYS, Budget(cost=0.25))["amount_saved"] == 3 * 10 - 6 * 0.25


def test_of_equal_scores_honest_ones_count_first() -> None:
    figures = measure_budget(judged((1, 1, 0.5, YES), (2, 1, 0.5, NO), (3, 1, 0.5, YES)), Budget(2))
    assert (figures["card_precision"], figures["precision_at_budget"]) == (1 / 2, 1 / 2)


def test_an_entry_of_a_sample_fills_the_budget_by_its_weight() -> None:
    figures = measure_budget(judged((1, 1, 0.9, YES), (2, 1, 0.8, NO), (3, 1, 0.7, YES), weights=4.0), Budget(6, 0.5))
    assert figures["precision_at_budget"] == figures["card_precision"] == 4 / 6
    assert figures["recall_at_budget"] == 4 / 8
    assert figures["amount_saved"] == 80 - 12 * 0.5


def test_figures_without_fraud_are_left_out() -> None:
    assert measure_budget(judged((1, 1, 0.9, NO), (2, 1, 0.1, NO)), Budget(1)) == {
        "amount_saved": 0.0,
        "precision_at_budget": 0.0,
        "card_precision": 0.0,
    }


def test_precision_and_recall_of_drawn_and_of_listed_accounts_are_weighted_and_have_limits() -> None:
    # Listed: two frauds and an honest account are predicted. Drawn, for 50 each: a missed fraud, an honest account.
    rows = judged((1, 1, 0.9, YES), (2, 1, 0.9, YES), (3, 1, 0.9, NO), (4, 1, 0.1, YES), (5, 1, 0.2, NO))
    weighted = replace(rows, weights=np.array([1.0, 1.0, 1.0, 50.0, 50.0]))
    of = estimated(weighted)
    assert (of["precision"].value, of["recall"].value) == (2 / 3, 2 / 52)
    assert 0 < of["recall"].low < 2 / 52 < of["recall"].high < 1
    assert 0 < of["precision"].low < 2 / 3 < of["precision"].high < 1
    # If nobody stands for others, what is known says nothing of them.
    assert estimated(rows) == {}
