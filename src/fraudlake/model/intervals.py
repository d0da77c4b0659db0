"""Intervals: the weights of what was seen in a random sample become limits of what there is.

They are those of Fay and Feuer (Statistics in Medicine 16, 1997) for weighted sums of Poisson counts. For equal weights
they are the exact Poisson interval. They hold their confidence for few and for unequal weights, and do not shrink to
zero if nothing was seen.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

CONFIDENCE = 0.9
"""The probability with which an interval holds the truth, at least."""


class Estimate(NamedTuple):
    """An estimate, which is None if nothing tells it, and the limits of its interval."""

    value: float | None
    low: float
    high: float

    @property
    def is_bounded(self) -> bool:
        """Whether there is an upper limit."""
        return isfinite(self.high)


def of_sum(weights: Floats, largest: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a sum of weights of what was seen, each of which counts a Poisson number of times.

    Args:
        weights: the weight of each that was seen.
        largest: the largest weight that one could have.
        confidence: the probability with which the interval holds the truth, half of the rest on either side.
    """
    # The import takes longer than the rest; pages of a lake without a queue do not need it.
    from scipy.special import gammaincinv

    tail = (1 - confidence) / 2
    sum_, square = float(weights.sum()), float((weights**2).sum())
    low = square / sum_ * float(gammaincinv(sum_**2 / square, tail)) if sum_ else 0.0
    sum_, square = sum_ + largest, square + largest**2
    return low, square / sum_ * float(gammaincinv(sum_**2 / square, 1 - tail)) if sum_ else 0.0


def of_share(
    hits: Floats, others: Floats, known_hits: float, known_others: float, largest: float
) -> tuple[float, float]:
    """Return the interval of the share of hits, of units that were drawn and units that are known anyway.

    Each of the two sums has half of what may go wrong (Bonferroni), so the interval holds its confidence.

    Args:
        hits: the weights of drawn units that are hits.
        others: the weights of the other drawn units.
        known_hits: the number of hits among units that were not drawn, but are known.
        known_others: the number of others among these.
        largest: the largest weight that a drawn unit could have.
    """
    confidence = (1 + CONFIDENCE) / 2
    fewest_hits, most_hits = (known_hits + limit for limit in of_sum(hits, largest, confidence))
    fewest_others, most_others = (known_others + limit for limit in of_sum(others, largest, confidence))
    low = fewest_hits / (fewest_hits + most_others) if fewest_hits else 0.0
    return low, most_hits / (most_hits + fewest_others) if most_hits else 1.0
