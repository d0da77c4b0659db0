"""What decides promotion: the interval of the difference, against a bootstrap in plain Python. No model is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import quantiles
from typing import Any

import numpy as np
import pytest

from fraudlake.model import promotion
from fraudlake.model.metrics import OF_BUDGET, Budget, LabelledScores, Ranked, metrics_of
from fraudlake.model.promotion import Decision
from fraudlake.settings import load

METRICS = ("area_under_pr", *OF_BUDGET)


def scored(accounts: int = 30, skill: float = 1.0, seed: int = 7, **changed: Any) -> LabelledScores:
    """Twelve payments of each account over three days; a third of the accounts has fraud. Scores have ties."""
    draw = np.random.default_rng(seed)
    entries = 12 * accounts
    account = np.repeat(np.arange(accounts), 12)
    day = np.tile(np.arange(3), 4 * accounts)
    fraud = (account % 3 == 0) & (draw.random(entries) < 0.3)
    scores = np.round(draw.normal(skill * fraud), 1)
    amounts = np.round(draw.gamma(2, 30, entries), 2)
    rows = LabelledScores(fraud, scores > 0.5, scores, amounts, account, day, np.ones(entries))
    return replace(rows, **changed)


def same_rows(rows: LabelledScores, scores: np.ndarray) -> LabelledScores:
    return replace(rows, scores=scores, predicted=scores > 0.5)


def decide(old: LabelledScores, new: LabelledScores, **settings: Any) -> Decision:
    return promotion.decide("1", old, "2", new, load(**{"alert_budget": 10, **settings}))


def drawn_again(rows: LabelledScores, weights: np.ndarray) -> list[tuple[str, int, float, bool, bool, float]]:
    """Each payment as many times as its weight says, each time of another copy of the account."""
    return [
        (f"{account} {copy}", int(day), float(score), bool(fraud), bool(predicted), float(amount))
        for account, day, score, fraud, predicted, amount, times in zip(
            rows.accounts, rows.days, rows.scores, rows.fraud, rows.predicted, rows.amounts, weights, strict=True
        )
        for copy in range(int(times))
    ]


def measured(rows: list[tuple[str, int, float, bool, bool, float]], alerts: int, cost: float) -> dict[str, float]:
    """The metrics by their definitions, payment by payment."""
    frauds = [score for _, _, score, fraud, _, _ in rows if fraud]
    others = [score for _, _, score, fraud, _, _ in rows if not fraud]
    area = sum(sum(s >= one for s in frauds) / sum(row[2] >= one for row in rows) for one in frauds) / len(frauds)
    pairs = sum((one > other) + (one == other) / 2 for one in frauds for other in others)
    hits = reviewed = 0
    card_hits = card_reviewed = card_fraud = 0
    detected: set[str] = set()
    for day in sorted({row[1] for row in rows}):
        of_day = sorted((row for row in rows if row[1] == day), key=lambda row: (-row[2], row[3]))
        hits += sum(row[3] for row in of_day[:alerts])
        reviewed += len(of_day[:alerts])
        cards = {row[0] for row in of_day} - detected
        ranking = []
        for card in cards:
            payments = [row for row in of_day if row[0] == card]
            ranking.append((-max(row[2] for row in payments), any(row[3] for row in payments), card))
        for _, is_fraud, card in sorted(ranking)[:alerts]:
            card_reviewed += 1
            card_hits += is_fraud
            if is_fraud:
                detected.add(card)
        card_fraud += sum(is_fraud for _, is_fraud, _ in ranking)
    return {
        "area_under_pr": area,
        "area_under_roc": pairs / len(frauds) / len(others),
        "precision_at_budget": hits / reviewed,
        "recall_at_budget": hits / len(frauds),
        "card_precision": card_hits / card_reviewed,
        "card_recall": card_hits / card_fraud,
        "amount_saved": sum(row[5] * row[3] - cost for row in rows if row[4]),
    }


def resampled(rows: LabelledScores, resamples: int) -> list[np.ndarray]:
    """How often each account is drawn, a column for each resample."""
    (times,) = promotion.resampled(len(set(rows.accounts.tolist())), len(rows.accounts), resamples)
    return list(times.T)


def alone(ranked: Ranked, names: Sequence[str], times: np.ndarray) -> dict[str, float]:
    """The metrics of a single resample."""
    return {name: value[0] for name, value in ranked.measure(names, times[:, None]).items()}


def test_metrics_of_a_resample_are_those_of_payments_that_are_written_down_again() -> None:
    """Scores without ties, since which of two equal accounts is reviewed first is open."""
    rows = scored()
    rows = same_rows(rows, np.random.default_rng(1).normal(rows.fraud))
    ranked = Ranked(rows, Budget(7, 2.5))
    for times in resampled(rows, 5):
        assert times.sum() == 30
        expected = measured(drawn_again(rows, times[rows.accounts]), 7, 2.5)
        assert alone(ranked, METRICS, times) == pytest.approx(expected)


def test_equal_scores_do_not_depend_on_the_order_of_payments() -> None:
    rows = scored()
    by_transaction = METRICS[:5]
    for times in resampled(rows, 5):
        expected = measured(drawn_again(rows, times[rows.accounts]), 7, 0.0)
        found = alone(Ranked(rows, Budget(7)), by_transaction, times)
        assert found == pytest.approx({name: expected[name] for name in by_transaction})


@pytest.mark.parametrize("metric", ["area_under_pr", "recall_at_budget", "amount_saved"])
def test_the_interval_is_that_of_a_bootstrap_in_plain_python(metric: str) -> None:
    old = scored(seed=7)
    new = same_rows(old, np.round(old.scores + 0.5 * old.fraud, 1))
    settings = {"promotion_metric": metric, "alert_cost": 1.0}
    differences = []
    for times in resampled(old, promotion.RESAMPLES):
        weights = times[old.accounts]
        before, after = (measured(drawn_again(rows, weights), 10, 1.0)[metric] for rows in (old, new))
        differences.append(after - before)
    estimate = decide(old, new, **settings).differences[metric]
    before, after = (measured(drawn_again(rows, old.weights), 10, 1.0)[metric] for rows in (old, new))
    low, *_, high = quantiles(differences, n=20, method="inclusive")
    assert estimate == pytest.approx((after - before, low, high))


def test_the_same_accounts_are_drawn_each_time_however_many_resamples_fit_into_memory() -> None:
    at_once, again = (np.hstack(list(promotion.resampled(30, 360, 50))) for _ in range(2))
    in_parts = list(promotion.resampled(30, 2_000_000, 50))
    assert len(in_parts) == 25
    assert np.array_equal(at_once, again) and np.array_equal(at_once, np.hstack(in_parts))
    assert np.mean(at_once == 0) == pytest.approx(np.exp(-1), abs=0.02)


def test_more_reviews_than_the_top_of_a_day_has_are_counted_to_the_end() -> None:
    """The accounts of the highest scores are not drawn, so the review goes far down the ranking."""
    rows = scored(accounts=200)
    rows = same_rows(rows, np.random.default_rng(1).normal(-rows.accounts / 10))
    times = np.where(np.arange(200) < 100, 0.0, 1.0)
    expected = measured(drawn_again(rows, times[rows.accounts]), 3, 0.0)
    assert alone(Ranked(rows, Budget(3)), METRICS, times) == pytest.approx(expected)


def test_a_version_that_ranks_fraud_higher_takes_over_and_says_by_how_much() -> None:
    old = scored()
    new = same_rows(old, old.scores + old.fraud)
    decision = decide(old, new)
    area, precision, recall = (
        f"{lead.value:+.4f} (90 % interval {lead.low:+.4f} to {lead.high:+.4f}"
        for lead in decision.differences.values()
    )
    before, after = (metrics_of(rows.fraud, rows.predicted, rows.scores) for rows in (old, new))
    assert decision.is_better
    assert f"version 2 beats version 1 (area under PR {after['area_under_pr']:.4f} against " in decision.reason
    assert f"against {before['area_under_pr']:.4f}, difference {area}, to be above 0); " in decision.reason
    assert f"difference {precision}, not to be below 0); recall at budget " in decision.reason
    assert decision.reason.endswith(f"difference {recall}, not to be below 0))")


def test_the_same_scores_do_not_take_over_and_neither_do_worse_ones() -> None:
    old = scored()
    assert not decide(old, old).is_better
    assert decide(old, old).differences["area_under_pr"] == (0, 0, 0)
    assert not decide(same_rows(old, old.scores + old.fraud), old).is_better


def test_accuracy_decides_nothing() -> None:
    old = scored()
    assert not decide(old, replace(old, predicted=old.fraud)).is_better


def test_a_lead_that_chance_explains_is_none_until_there_is_more_fraud() -> None:
    """A single account gains; then all accounts do, by as much."""
    old = scored()
    by_one = old.scores + 2.0 * (old.fraud & (old.accounts == 0))
    decision = decide(old, same_rows(old, by_one))
    lead = decision.differences["area_under_pr"]
    assert lead.value > 0 and lead.low <= 0
    assert not decision.is_better and decision.reason.startswith("version 2 does not beat version 1 (area under PR")
    assert decide(old, same_rows(old, old.scores + 2.0 * old.fraud)).is_better


def test_a_lead_below_the_budget_is_none() -> None:
    """The old version has some fraud at the top and the rest at the bottom; the new one has all in the middle."""
    rows = scored(accounts=60)
    draw = np.random.default_rng(3)
    at_top = rows.fraud & (rows.accounts % 2 == 0)
    noise = draw.random(len(rows.scores))
    old = same_rows(rows, noise - 10 * rows.fraud + 20 * at_top)
    new = same_rows(rows, noise + (noise > 0.9) + 0.9 * rows.fraud)
    decision = decide(old, new, alert_budget=5, promotion_metric="area_under_roc")
    assert decision.is_better
    decision = decide(old, new, alert_budget=5)
    assert decision.differences["precision_at_budget"].high < 0
    assert not decision.is_better


@pytest.mark.parametrize("metric", METRICS)
def test_the_metric_that_a_setting_names_decides(metric: str) -> None:
    old = scored()
    new = same_rows(old, np.where(old.fraud, 3.0, -3.0))
    decision = decide(old, new, promotion_metric=metric)
    assert decision.is_better
    assert next(iter(decision.differences)) == metric
    assert not decide(new, old, promotion_metric=metric).is_better


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        pytest.param(scored(fraud=np.zeros(360, bool)), "the test rows have fraud of 0 accounts, and 5", id="none"),
        pytest.param(scored(fraud=np.ones(360, bool)), "all test rows are fraud", id="nothing else"),
        pytest.param(scored(accounts=1), "the test rows have fraud of 1 account, and 5 are needed", id="one account"),
        pytest.param(scored(accounts=12), "the test rows have fraud of 4 accounts, and 5 are needed", id="four"),
    ],
)
def test_too_little_to_compare_leaves_the_champion_and_says_so(rows: LabelledScores, reason: str) -> None:
    decision = decide(rows, same_rows(rows, rows.scores + rows.fraud))
    assert not decision.is_better and decision.differences == {}
    assert decision.reason.startswith(f"version 2 is not compared with version 1: {reason}")


def test_sampled_rows_keep_their_weights() -> None:
    """A quarter of the genuine payments, each for four, gives about the difference of all of them."""
    rows = scored(accounts=300)
    better = same_rows(rows, np.round(rows.scores + 0.4 * rows.fraud, 1))
    chosen = rows.fraud | (np.random.default_rng(5).random(len(rows.fraud)) < 0.25)
    weights = np.where(rows.fraud, 1.0, 4.0)
    old, new = (replace(of, weights=weights).where(chosen) for of in (rows, better))
    of_all, of_some = (decide(*pair).differences["area_under_pr"] for pair in ((rows, better), (old, new)))
    assert of_some.value == pytest.approx(of_all.value, rel=0.15)
    assert of_some.low < of_all.value < of_some.high
