"""Budget: converts a number of accounts a day to the probability threshold for predicting fraud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fraudlake.model import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from fraudlake.model.history import Rows

    Floats = NDArray[np.floating[Any]]

Curve = list[tuple[int, float]]
"""Increasing numbers of accounts a day, each with the probability that this number of accounts reach on a day."""

_DAY = 86_400_000_000
_HOUR = 3_600_000_000


def curve(rows: Rows, probability: Floats) -> Curve:
    """Measure how many accounts a day reach a probability; the numbers have up to two significant digits."""
    never = np.zeros(len(rows.time), bool)
    days = rows.time // _DAY
    unlabelled = metrics.LabelledScores(never, never, probability, rows.amount, rows.account, days, rows.weights)
    by_day = [of_day.by_account() for of_day in unlabelled.by_day()]
    scores, weights = (np.concatenate([getattr(one, name) for one in by_day]) for name in ("scores", "weights"))
    order, is_last = metrics.by_score(scores)
    levels = scores[order][is_last]
    hours = int(rows.time.max() // _HOUR - rows.time.min() // _HOUR) + 1
    accounts = np.cumsum(weights[order])[is_last] * 24 / hours
    numbers = [*_numbers(float(accounts[-1]))]
    # Accounts with equal scores reach a level all or none; at least one account reaches the highest.
    at = np.maximum(np.searchsorted(accounts, np.array(numbers) + 1e-9, "right") - 1, 0)
    return [(number, float(level)) for number, level in zip(numbers, levels[at], strict=True)]


def _numbers(most: float) -> Iterator[int]:
    """Yield 1, 2 … 99, 100, 110 … 990, 1000, 1100 …, up to the first number that is at least ``most``."""
    number = 1
    step = 1
    while True:
        yield number
        if number >= most:
            return
        step = max(step, 10 ** (len(str(number)) - 2))
        number += step


def threshold(wanted: float | str, points: Curve) -> float:
    """Return the probability that the setting ``threshold`` means for a version of the model.

    Args:
        wanted: a probability, or a budget such as ``100 accounts a day``.
        points: the version's curve.
    """
    if not isinstance(wanted, str):
        return wanted
    accounts = int(wanted.split()[0])
    return max((number, level) for number, level in points if number <= max(accounts, points[0][0]))[1]


def thresholds(wanted: float | str, profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return what :func:`threshold` gives for each version, by its number."""
    return {version: threshold(wanted, profile["budgets"]) for version, profile in profiles.items()}
