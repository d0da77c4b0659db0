"""The classifier against what can be computed by hand or by XGBoost alone."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fraudlake.model import classifier
from fraudlake.model.classifier import Classifier, Encoding, Logistic, Trees

NAMES = ("amount", "hour")


def rows(count: int = 4_000) -> tuple[Any, Any]:
    """Fraud is likely if both features are high."""
    draw = np.random.default_rng(5)
    features = draw.random((count, 2)).astype(np.float32)
    fraud = (draw.random(count) < np.where(features.min(axis=1) > 0.7, 0.8, 0.05)).astype(float)
    return features, fraud


def fitted(algorithm: str) -> Classifier:
    features, fraud = rows()
    weights = np.where(fraud == 1, 5.0, 1.0)
    made = (
        Trees.fit(Trees.binned(features, fraud, weights), leaves=8, trees=20)
        if algorithm == "trees"
        else Logistic.fit(features, fraud, weights, penalty=1e-4)
    )
    return Classifier.calibrated(NAMES, made, features, fraud, np.ones(len(fraud)))


@pytest.fixture(scope="module", params=["trees", "logistic", "joined"])
def learned(request: pytest.FixtureRequest) -> Classifier:
    if request.param == "joined":
        return replace(fitted("trees"), feedback=fitted("logistic"))
    return fitted(request.param)


def test_the_probability_with_feedback_is_the_mean_of_both() -> None:
    one, other = fitted("trees"), fitted("logistic")
    both = replace(one, feedback=other)
    features, _ = rows()
    means = (one.probabilities(features) + other.probabilities(features)) / 2
    assert both.probabilities(features) == pytest.approx(means, rel=1e-9)
    # What only the second one takes for fraud has its reasons.
    row = np.array([[0.9, 0.9]])
    unlikely = replace(one, offset=one.offset - 20, feedback=other)
    assert unlikely.contributions(row)[0, :2] == pytest.approx(other.contributions(row)[0, :2], rel=1e-4)
    assert both.importance == pytest.approx((one.importance + other.importance) / 2)


@pytest.mark.slow
def test_what_was_stored_scores_as_before(learned: Classifier) -> None:
    features, _ = rows()
    stored = learned.to_bytes()
    assert json.loads(stored)["features"] == list(NAMES)
    assert (Classifier.from_bytes(stored).probabilities(features) == learned.probabilities(features)).all()


def test_contributions_add_up_to_the_log_odds(learned: Classifier) -> None:
    features, _ = rows()
    parts = learned.contributions(features)
    assert parts.shape == (len(features), 3)
    assert parts.sum(axis=1) == pytest.approx(learned.log_odds(features), abs=1e-4)
    assert np.ptp(parts[:, 0]) > 0.5


def test_a_huge_value_has_a_probability_and_stops_no_other_row(learned: Classifier) -> None:
    rows = np.array([[1e308] * len(learned.features), [-1e308] * len(learned.features), [1.0] * len(learned.features)])
    probabilities = learned.probabilities(rows)
    assert np.isfinite(probabilities).all()
    assert np.isfinite(learned.contributions(rows)).all()
    assert probabilities[2] == learned.probabilities(rows[2:])[0]


def test_calibration_takes_back_what_the_weight_of_fraud_bent(learned: Classifier) -> None:
    features, fraud = rows()
    uncalibrated = 1 / (1 + np.exp(-learned.learned.margins(features)))
    assert uncalibrated.mean() > 1.5 * fraud.mean()
    assert learned.probabilities(features).mean() == pytest.approx(fraud.mean(), rel=0.02)


def test_the_margin_of_trees_is_xgboosts_own(learned: Classifier) -> None:
    import xgboost

    if isinstance(learned.learned, Trees):
        features, _ = rows()
        booster = xgboost.Booster(model_file=bytearray(learned.learned.text.encode()))
        margins = booster.predict(xgboost.DMatrix(features), output_margin=True)
        assert learned.learned.margins(features) == pytest.approx(margins, abs=1e-6)
        alone = replace(learned, feedback=None)
        assert alone.log_odds(features) == pytest.approx(learned.slope * margins + learned.offset, abs=1e-5)


def test_contributions_of_a_tree_are_the_shapley_values_of_all_orders_of_its_features() -> None:
    """A tree of two features is small enough to leave features out by hand: a split on one that is left out is the mean
    of its branches, weighted by how many rows went there."""
    features, fraud = rows()
    trees = Trees.fit(Trees.binned(features, fraud, np.ones(len(fraud))), leaves=4, trees=1)
    (tree,) = json.loads(trees.text)["learner"]["gradient_booster"]["model"]["trees"]
    base = trees.contributions(features[:1])[0, -1] - value(tree, 0, features[0], known=set())
    for row in features[:20]:
        expected = [0.0, 0.0]
        for order in itertools.permutations(range(2)):
            known: set[int] = set()
            for feature in order:
                before = value(tree, 0, row, known)
                known = known | {feature}
                expected[feature] += (value(tree, 0, row, known) - before) / math.factorial(2)
        assert trees.contributions(row[None, :])[0].tolist() == pytest.approx(
            [*expected, base + value(tree, 0, row, set())], abs=1e-5
        )


def value(tree: dict[str, Any], node: int, row: Any, known: set[int]) -> float:
    left, right = tree["left_children"][node], tree["right_children"][node]
    if left == -1:
        return float(tree["base_weights"][node])
    feature = tree["split_indices"][node]
    if feature in known:
        return value(tree, left if row[feature] < tree["split_conditions"][node] else right, row, known)
    weights = [tree["sum_hessian"][child] for child in (left, right)]
    values = [value(tree, child, row, known) for child in (left, right)]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def test_a_logistic_regression_finds_the_weights_that_made_its_rows() -> None:
    draw = np.random.default_rng(2)
    features = draw.normal(size=(200_000, 2))
    odds = 1.5 * features[:, 0] - 0.5 * features[:, 1] - 1.0
    fraud = (draw.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(float)
    fitted = Logistic.fit(features, fraud, np.ones(len(odds)), penalty=0.0)
    weights = np.array(fitted.weights) / fitted.scales
    assert weights == pytest.approx([1.5, -0.5], abs=0.03)
    assert fitted.intercept - weights @ fitted.means == pytest.approx(-1.0, abs=0.03)


def test_a_row_that_weighs_twice_is_two_rows() -> None:
    features, fraud = rows(500)
    weights = np.where(fraud == 1, 2.0, 1.0)
    twice = np.repeat(np.arange(500), weights.astype(int))
    weighted = Logistic.fit(features, fraud, weights, penalty=0.0)
    repeated = Logistic.fit(features[twice], fraud[twice], np.ones(len(twice)), penalty=0.0)
    assert weighted.margins(features) == pytest.approx(repeated.margins(features), abs=1e-3)


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (b"\x80\x04pickled", "codec"),
        (b"[1]", "not a stored classifier"),
        (
            b'{"format": 1, "kind": "forest", "features": [], "learned": {}}',
            "not a stored classifier .KeyError: 'forest'",
        ),
        (b'{"format": 9}', "it has format 9, and this fraudlake reads format 1"),
    ],
)
def test_what_is_no_classifier_is_refused(stored: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Classifier.from_bytes(stored)


@pytest.mark.slow
def test_the_module_needs_nothing_of_fraudlake(tmp_path: Path) -> None:
    features, fraud = rows(500)
    made = Trees.fit(Trees.binned(features, fraud, np.ones(500)), leaves=4, trees=2)
    stored = Classifier.calibrated(NAMES, made, features, fraud, np.ones(500)).to_bytes()
    (tmp_path / "classifier.py").write_text(Path(classifier.__file__).read_text())
    (tmp_path / "model.json").write_bytes(stored)
    program = (
        "import sys; sys.modules['fraudlake'] = sys.modules['pyspark'] = None\n"
        "import classifier, numpy\n"
        "print(classifier._load_pyfunc('model.json').probabilities(numpy.array([[0.9, 0.9]]))[0])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert float(ended.stdout) == pytest.approx(Classifier.from_bytes(stored).probabilities(np.array([[0.9, 0.9]]))[0])


def test_a_text_becomes_the_share_of_fraud_of_its_value_and_what_is_unseen_the_mean() -> None:
    fraud = np.array([1.0] * 300 + [0.0] * 700 + [0.0] * 1000)
    encoding = Encoding.fit(["FR", "DE", "ES"], np.array([0] * 1000 + [1] * 1000), fraud, np.ones(2000))
    assert encoding == Encoding({"FR": 315 / 1100, "DE": 15 / 1100}, 0.15, 0.15)
    assert [encoding.encode(text) for text in ("FR", "ES", None)] == [315 / 1100, 0.15, 0.15]
    assert Encoding.fit([None, "FR"], np.array([0, 1]), np.array([1.0, 0.0]), np.ones(2)).missing == 51 / 101


def test_a_classifier_with_texts_and_missing_numbers_is_stored_and_scores_frames() -> None:
    draw = np.random.default_rng(3)
    features = draw.random((500, 2))
    fraud = (features[:, 0] > 0.7).astype(float)
    features[::7, 1] = np.nan
    learned = Logistic.fit(features, fraud, np.ones(500), penalty=1e-4)
    encodings = {"country": Encoding({"FR": 0.9, "DE": 0.1}, 0.2, 0.3)}
    made = Classifier.calibrated(("country", "mean"), learned, features, fraud, np.ones(500), encodings)
    again = Classifier.from_bytes(made.to_bytes())
    assert again == made
    frame = pd.DataFrame({"mean": [0.5, None, 0.5, 0.5], "country": ["FR", "DE", None, "ES"]})
    expected = made.probabilities(np.array([[0.9, 0.5], [0.1, np.nan], [0.2, 0.5], [0.3, 0.5]]))
    assert again.predict(frame).tolist() == expected.tolist()
    assert not np.isnan(expected).any()
