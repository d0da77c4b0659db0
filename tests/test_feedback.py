"""What each way of benchmarks/feedback.py learns from, and the world that it reviews, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import feedback
from benchmarks.learning_worlds import KINDS, LASTS, World, drifting
from fraudlake.model.classifier import Classifier, Logistic

DAYS = 60
DRIFTS = (12, 24, 36, 48)
MODEL = Classifier(("amount",), Logistic([0.0], [1.0], [1.0], 0.0), 1.0, 0.0)


@pytest.fixture(scope="module")
def world() -> World:
    return drifting(seed=1, accounts=300, days=DAYS, drifts=DRIFTS)


def test_each_kind_of_fraud_is_paid_from_its_drift_on_until_it_ends(world: World) -> None:
    """The fifth kind pays 48 to 52, six times or more on an account's day; no other kind does."""
    fraud = world.rows.fraud == 1
    assert world.day[fraud].min() < 5 and world.day[fraud].max() > DAYS - 5
    key = world.rows.account[fraud] * 1000 + world.day[fraud]
    _, of, payments = np.unique(key, return_inverse=True, return_counts=True)
    is_equal = (world.rows.amount[fraud] >= 48) & (world.rows.amount[fraud] <= 52)
    is_fifth = (payments[of] >= 6) & (np.bincount(of, is_equal) == payments)[of]
    assert world.day[fraud][is_fifth].min() >= DRIFTS[3]
    is_second = world.rows.amount[fraud] > 250
    begin = DRIFTS[0]
    assert begin <= world.day[fraud][is_second].min() <= world.day[fraud][is_second].max() < begin + LASTS
    amounts = np.bincount(of, world.rows.amount[fraud])
    assert 150 < amounts.min() < amounts.max() < 600
    assert len(KINDS) == len(DRIFTS) + 1


@pytest.mark.parametrize("way", feedback.WAYS)
def test_a_way_learns_from_old_labels_and_from_verdicts_that_are_known(
    world: World, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught: list[set[int]] = []
    weighed: list[float] = []
    reviewed = world.rows.account == world.rows.account[0]

    def learned(world: World, at: np.ndarray, weights: np.ndarray) -> Any:
        assert set(weights[(world.rows.fraud[at] == 1) & ~reviewed[at]]) <= {1.0}
        taught.append(set(world.day[at]))
        weighed.append(float(weights.max()))
        return MODEL

    monkeypatch.setattr(feedback, "learned", learned)
    known_on = feedback.reported_on(world, seed=1)
    stands_for = np.where(reviewed, 70.0, 1.0)
    model = feedback.trained(world, way, 50, reviewed, stands_for, known_on)
    old = set(range(30))
    reported = [day for day, fraud, on in zip(world.day, world.rows.fraud, known_on, strict=True) if fraud and on <= 50]
    verdicts = set(world.day[reviewed & (world.day < 50)])
    known = {day for day in {*reported, *verdicts} if day >= 30}
    assert known and max(reported) <= 43
    both = [old, known]
    assert taught == {"delayed": [old], "one": [old | known], "joined": both, "weighted": both}[way]
    assert model is not None
    assert (model.feedback is None) == (way in ("delayed", "one"))
    largest = {"delayed": 1 / feedback.SAMPLED, "one": 1 / feedback.SAMPLED, "joined": 1.0, "weighted": 70.0}[way]
    assert weighed[-1] == pytest.approx(largest)


def test_fraud_is_reported_seven_to_twenty_days_later_with_all_payments_of_its_day(world: World) -> None:
    late = feedback.reported_on(world, seed=1) - world.day
    assert set(late) == set(range(7, 21))
    key = world.rows.account * 1000 + world.day
    assert len(set(zip(key, late, strict=True))) == len(set(key))


def test_a_model_that_cannot_be_learned_is_left_out(world: World) -> None:
    nobody = np.zeros(len(world.day), bool)
    never = np.full(len(world.day), 999)
    model = feedback.trained(world, "joined", 50, nobody, np.ones(len(world.day)), never)
    assert model is not None
    assert model.feedback is None


def test_the_interval_of_equal_differences_has_no_width() -> None:
    assert feedback.difference(np.full(5, 0.25)) == {"mean": 0.25, "low": 0.25, "high": 0.25}
