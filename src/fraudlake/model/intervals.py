"""Intervals: computes confidence intervals of totals and shares from the weights of a random sample.

The method is that of Fay and Feuer (Statistics in Medicine 16, 1997) for weighted sums of Poisson counts. For equal
weights it is the exact Poisson interval. It keeps its confidence for few and for unequal weights, and the interval does
not shrink to zero if nothing was seen.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

CONFIDENCE = 0.9
"""The least probability with which an interval contains the true value."""


class Estimate(NamedTuple):
    """An estimate, or None if there is no data for it, and the limits of its interval."""

    value: float | None
    low: float
    high: float

    @property
    def is_bounded(self) -> bool:
        """Whether there is an upper limit."""
        return isfinite(self.high)


def estimate_sum(weights: Floats, largest: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of the sum of the weights of sampled units, whose numbers are Poisson counts.

    Args:
        weights: the weight of each sampled unit.
        largest: the largest weight that a unit could have.
        confidence: the probability with which the interval contains the true value; both tails have equal probability.
    """
    # The import takes longer than the computation, and pages of a lake without a queue do not need it.
    from scipy.special import gammaincinv

    tail = (1 - confidence) / 2
    sum_ = float(weights.sum())
    square = float((weights**2).sum())
    low = square / sum_ * float(gammaincinv(sum_**2 / square, tail)) if sum_ else 0.0
    sum_ = sum_ + largest
    square = square + largest**2
    return low, square / sum_ * float(gammaincinv(sum_**2 / square, 1 - tail)) if sum_ else 0.0


def estimate_share(
    hits: Floats, others: Floats, known_hits: float, known_others: float, largest: float
) -> tuple[float, float]:
    """Return the interval of the share of hits among units that were drawn and units that are known anyway.

    Each of the two sums gets half of the error probability (Bonferroni), so the interval keeps its confidence.

    Args:
        hits: the weights of drawn units that are hits.
        others: the weights of the other drawn units.
        known_hits: the number of hits among the known units that were not drawn.
        known_others: the number of other known units that were not drawn.
        largest: the largest weight that a drawn unit could have.
    """
    confidence = (1 + CONFIDENCE) / 2
    fewest_hits, most_hits = (known_hits + limit for limit in estimate_sum(hits, largest, confidence))
    fewest_others, most_others = (known_others + limit for limit in estimate_sum(others, largest, confidence))
    low = fewest_hits / (fewest_hits + most_others) if fewest_hits else 0.0
    return low, most_hits / (most_hits + fewest_others) if most_hits else 1.0
