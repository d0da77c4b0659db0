"""The classifier: predicts the probability of fraud from features, with the contribution of each feature.

This module imports nothing from fraudlake. MLflow stores its file with each model, so loading a model needs only NumPy
and XGBoost. A stored classifier is JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    """Features are a matrix of (rows, features); margins and probabilities have one number per row."""

FORMAT = 1
"""Version of the stored form; other versions are refused."""

_TREES = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "grow_policy": "lossguide",
    "max_depth": 0,
    "eta": 0.1,
    "seed": 1,
}

_LARGEST = 1e12
_MOST = 700.0
"""The largest log-odds, of which the exponential is still a number."""
_TINY = 1e-300
_PRIOR = 100.0
"""The weight of the overall mean in the encoding of a text, as a number of transactions."""

# By default, waiting threads of XGBoost spin, and take cores from the threads that they wait for: if another process is
# busy, a training of 1 s takes 15 s (seen with XGBoost 3.2 on 2 cores). XGBoost reads the variable when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@dataclass(frozen=True)
class Logistic:
    """A logistic regression on standardised features."""

    means: list[float]
    scales: list[float]
    weights: list[float]
    intercept: float

    @classmethod
    def fit(cls, features: Floats, fraud: Floats, weights: Floats, penalty: float) -> Logistic:
        """Learn from rows; ``penalty`` applies to the squared weights of the standardised features."""
        from scipy.optimize import minimize
        from scipy.special import expit

        if np.isnan(features).any():
            features = _filled(features, _means(features))
        means = features.mean(axis=0, dtype=float)
        scales = features.std(axis=0, dtype=float)
        scales[scales == 0] = 1.0
        columns = (features - means) / scales
        share = weights / weights.sum()

        def loss(parameters: Floats) -> tuple[float, Floats]:
            margins = columns @ parameters[1:] + parameters[0]
            value = share @ (np.logaddexp(0, margins) - fraud * margins) + penalty / 2 * parameters[1:] @ parameters[1:]
            error = share * (expit(margins) - fraud)
            return value, np.append(error.sum(), error @ columns + penalty * parameters[1:])

        start = np.zeros(columns.shape[1] + 1)
        solution = minimize(loss, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-8}).x
        return cls(means.tolist(), scales.tolist(), solution[1:].tolist(), float(solution[0]))

    def margins(self, features: Floats) -> Floats:
        """Return the log-odds."""
        margins: Floats = self.contributions(features).sum(axis=1)
        return margins

    def contributions(self, features: Floats) -> Floats:
        """Return each feature's contribution to the margin of the mean transaction; the last column is that margin."""
        means = np.array(self.means)
        parts = (_filled(features, means) - means) / np.array(self.scales) * np.array(self.weights)
        return np.column_stack([parts, np.full(len(features), self.intercept)])

    @property
    def importance(self) -> Floats:
        """The weight of each feature, as a share of all."""
        return _shares(np.abs(self.weights))


def _means(features: Floats) -> Floats:
    """Return the mean of each column's numbers; 0 if it has none."""
    missing = np.isnan(features)
    sums = np.where(missing, 0, features).sum(axis=0, dtype=float)
    means: Floats = sums / np.maximum((~missing).sum(axis=0), 1)
    return means


def _filled(features: Floats, means: Floats) -> Floats:
    """Replace missing numbers (NaN) by the mean; trees handle missing numbers themselves."""
    missing = np.isnan(features)
    return np.where(missing, means, features) if missing.any() else features


@dataclass(frozen=True)
class Encoding:
    """Numbers for the values of a text feature: the share of fraud of each value in the training data."""

    values: dict[str, float]
    missing: float
    unseen: float

    @classmethod
    def fit(cls, texts: Sequence[str | None], codes: NDArray[np.int64], fraud: Floats, weights: Floats) -> Encoding:
        """Learn from rows, given as indices into ``texts``; rare values are shrunk towards the mean."""
        counts = np.bincount(codes, weights=weights, minlength=len(texts))
        frauds = np.bincount(codes, weights=weights * fraud, minlength=len(texts))
        mean = float(frauds.sum() / counts.sum())
        shares = (frauds + mean * _PRIOR) / (counts + _PRIOR)
        encoded = {text: float(share) for text, share, n in zip(texts, shares, counts, strict=True) if n > 0}
        missing = encoded.pop(None, mean)
        return cls({str(text): share for text, share in encoded.items()}, missing, mean)

    def encode(self, text: str | None) -> float:
        """Return the number of a value."""
        return self.missing if text is None else self.values.get(text, self.unseen)


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees of XGBoost, in its JSON form."""

    text: str

    @staticmethod
    def binned(features: Floats, fraud: Floats, weights: Floats) -> Any:
        """Bin rows for :meth:`fit`; this takes longer than fitting some dozens of trees."""
        import xgboost

        return xgboost.QuantileDMatrix(features, fraud, weight=weights)

    @classmethod
    def fit(cls, rows: Any, leaves: int, trees: int) -> Trees:
        """Learn ``trees`` trees of up to ``leaves`` leaves from rows of :meth:`binned`, on all cores."""
        import xgboost

        booster = xgboost.train({**_TREES, "max_leaves": leaves}, rows, num_boost_round=trees)
        return cls(booster.save_raw("json").decode())

    @cached_property
    def _booster(self) -> Any:
        import xgboost

        booster = xgboost.Booster(model_file=bytearray(self.text.encode()))
        # Spark runs a task on each core already.
        booster.set_param({"nthread": 1})
        return booster

    def margins(self, features: Floats) -> Floats:
        """Return the log-odds."""
        margins: Floats = self._booster.inplace_predict(features, predict_type="margin")
        return margins.astype(float)

    def contributions(self, features: Floats) -> Floats:
        """Return each feature's exact Shapley value (TreeSHAP); the last column is the margin without any feature."""
        import xgboost

        parts: Floats = self._booster.predict(xgboost.DMatrix(features, nthread=1), pred_contribs=True)
        return parts.astype(float)

    @property
    def importance(self) -> Floats:
        """The gain of each feature, as a share of all."""
        gains = self._booster.get_score(importance_type="total_gain")
        return _shares(np.array([gains.get(f"f{at}", 0.0) for at in range(self._booster.num_features())]))


def _shares(sizes: Floats) -> Floats:
    total = float(sizes.sum())
    shares: Floats = sizes / max(total, _TINY)
    return shares


_KINDS = {"trees": Trees, "logistic": Logistic}


def single(features: NDArray[Any]) -> NDArray[np.float32]:
    """Return features as 32-bit floats, which XGBoost compares and which take half the memory; huge ones are cut off.

    Beyond 3e38 they would be infinite, which XGBoost refuses.
    """
    cut: NDArray[np.float32] = np.clip(features, -_LARGEST, _LARGEST).astype(np.float32)
    return cut


@dataclass(frozen=True)
class Classifier:
    """A learned model, the names of its features, and its calibration (Platt scaling).

    The calibrated log-odds are ``slope * margin + offset``.
    """

    features: tuple[str, ...]
    learned: Trees | Logistic
    slope: float
    offset: float
    encodings: dict[str, Encoding] = field(default_factory=dict)
    """The encodings of text features."""
    feedback: Classifier | None = None
    """A classifier of the same features that learned from verdicts on the latest transactions, if there is one: the
    probability is the mean of both."""

    @classmethod
    def calibrated(
        cls,
        names: Sequence[str],
        learned: Trees | Logistic,
        features: Floats,
        fraud: Floats,
        weights: Floats,
        encodings: dict[str, Encoding] | None = None,
    ) -> Classifier:
        """Calibrate a learned model on rows that it was not fitted on."""
        margins = learned.margins(single(features))
        platt = Logistic.fit(margins[:, None], fraud, weights, penalty=1e-5)
        slope = platt.weights[0] / platt.scales[0]
        return cls(tuple(names), learned, slope, platt.intercept - slope * platt.means[0], encodings or {})

    def log_odds(self, features: Floats) -> Floats:
        """Return the calibrated log-odds of fraud."""
        own: Floats = self.slope * self.learned.margins(single(features)) + self.offset
        return own if self.feedback is None else _joined(own, self.feedback.log_odds(features))

    def probabilities(self, features: Floats) -> Floats:
        """Return the calibrated probability of fraud."""
        return _probabilities(self.log_odds(features))

    def contributions(self, features: Floats) -> Floats:
        """Return what each feature adds to the log-odds.

        The last column holds the rest, so that the sum of a row is its log-odds. With ``feedback``, a feature adds the
        mean of what it adds to both, weighted by their probabilities: the one that sees fraud gives the reasons.
        """
        parts = self.slope * self.learned.contributions(single(features))
        parts[:, -1] += self.offset
        if self.feedback is None:
            return parts
        others = self.feedback.contributions(features)
        sums = parts.sum(axis=1), others.sum(axis=1)
        own, of_feedback = (_probabilities(of) for of in sums)
        share = (own / np.maximum(own + of_feedback, _TINY))[:, None]
        parts = share * parts + (1 - share) * others
        parts[:, -1] = _joined(*sums) - parts[:, :-1].sum(axis=1)
        return parts

    @property
    def importance(self) -> Floats:
        """The weight or gain of each feature, as a share of all; the mean of both with ``feedback``."""
        if self.feedback is None:
            return self.learned.importance
        means: Floats = (self.learned.importance + self.feedback.importance) / 2
        return means

    def to_bytes(self) -> bytes:
        """Return the stored form, JSON in UTF-8."""
        return json.dumps(self._as_dict()).encode()

    def _as_dict(self) -> dict[str, Any]:
        (kind,) = (name for name, form in _KINDS.items() if isinstance(self.learned, form))
        values: dict[str, Any] = {"format": FORMAT, "kind": kind, "features": self.features}
        values |= {"learned": asdict(self.learned), "slope": self.slope, "offset": self.offset}
        if self.encodings:
            values["encodings"] = {name: asdict(encoding) for name, encoding in self.encodings.items()}
        if self.feedback is not None:
            values["feedback"] = self.feedback._as_dict()
        return values

    @classmethod
    def from_bytes(cls, stored: bytes) -> Classifier:
        """Read the stored form.

        Raises:
            ValueError: the bytes are not a classifier, or have another version.
        """
        try:
            return cls._restore(json.loads(stored))
        except (KeyError, TypeError) as error:
            raise ValueError(f"it is not a stored classifier ({type(error).__name__}: {error})") from None

    @classmethod
    def _restore(cls, values: dict[str, Any]) -> Classifier:
        if values["format"] != FORMAT:
            raise ValueError(f"it has format {values['format']}, and this fraudlake reads format {FORMAT}")
        learned = _KINDS[values["kind"]](**values["learned"])
        encodings = {name: Encoding(**encoding) for name, encoding in values.get("encodings", {}).items()}
        feedback = cls._restore(values["feedback"]) if "feedback" in values else None
        return cls(tuple(values["features"]), learned, values["slope"], values["offset"], encodings, feedback)

    def predict(self, frame: pd.DataFrame, params: dict[str, Any] | None = None) -> Floats:
        """Return the probability of fraud of a frame's rows; ``mlflow.pyfunc`` calls this."""
        frame = frame[list(self.features)].copy()
        for name, encoding in self.encodings.items():
            frame[name] = [encoding.encode(text if isinstance(text, str) else None) for text in frame[name]]
        return self.probabilities(frame.to_numpy())


def _probabilities(log_odds: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-np.clip(log_odds, -_MOST, _MOST)))
    return probabilities


def _joined(some: Floats, others: Floats) -> Floats:
    """Return the log-odds of the means of the probabilities that two log-odds stand for."""
    # The logarithms of both probabilities and of both counter-probabilities, so that none is rounded to 0.
    fraud = np.logaddexp(-np.logaddexp(0, -some), -np.logaddexp(0, -others))
    genuine = np.logaddexp(-np.logaddexp(0, some), -np.logaddexp(0, others))
    joined: Floats = fraud - genuine
    return joined


def _load_pyfunc(path: str) -> Classifier:
    """Load the stored form from a file; ``mlflow.pyfunc`` calls this."""
    return Classifier.from_bytes(Path(path).read_bytes())
