"""A budget of accounts a day, as the probability that so many reach: by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fraudlake import settings
from fraudlake.errors import UsageError
from fraudlake.model import budget
from fraudlake.model.history import Rows

HOUR = 3_600_000_000


def rows(hours: list[int], accounts: list[int], weight: float = 1.0) -> Rows:
    count = len(hours)
    nothing = np.zeros(count)
    return Rows(
        np.array(hours) * HOUR,
        np.zeros((count, 1), np.float32),
        nothing,
        np.full(count, weight),
        np.array(accounts),
        nothing,
    )


TWO_DAYS = rows([0, 1, 5, 9, 24, 30, 47], [1, 1, 2, 3, 1, 2, 3])
SCORES = np.array([0.9, 0.95, 0.8, 0.2, 0.7, 0.6, 0.1])


def test_a_level_is_reached_by_as_many_accounts_a_day() -> None:
    # The highest of each account and day: 0.95, 0.8, 0.2; 0.7, 0.6, 0.1. One a day are two of these, two a day four.
    assert budget.curve(TWO_DAYS, SCORES) == [(1, 0.8), (2, 0.6), (3, 0.1)]


def test_accounts_with_equal_scores_are_above_a_level_together() -> None:
    equal = np.array([0.9, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5])
    # 0.9 has one account in two days; all have 0.5.
    assert budget.curve(TWO_DAYS, equal) == [(1, 0.9), (2, 0.9), (3, 0.5)]


def test_part_of_a_day_counts_by_its_hours() -> None:
    assert budget.curve(rows([0, 5, 11], [1, 2, 3]), np.array([0.9, 0.5, 0.1]))[1] == (2, 0.9)


def test_an_entry_of_a_sample_counts_by_its_weight() -> None:
    curve = budget.curve(rows([0, 5, 23], [1, 2, 3], weight=4.0), np.array([0.9, 0.5, 0.1]))
    assert {number: level for number, level in curve if number in (4, 7, 8, 12)} == {4: 0.9, 7: 0.9, 8: 0.5, 12: 0.1}


def test_a_budget_between_two_numbers_is_the_smaller_and_a_larger_one_the_last() -> None:
    curve = [(990, 0.3), (1000, 0.2)]
    assert [budget.threshold(f"{n} accounts a day", curve) for n in (5, 990, 999, 1000, 7000)] == [
        0.3,
        0.3,
        0.3,
        0.2,
        0.2,
    ]
    assert budget.threshold(0.5, []) == 0.5


def test_numbers_of_a_curve_have_two_digits() -> None:
    numbers = [*budget._numbers(1150)]
    assert numbers[:2] + numbers[98:101] + numbers[-3:] == [1, 2, 99, 100, 110, 1000, 1100, 1200]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("0.25", 0.25),
        (0.25, 0.25),
        ("100 accounts a day", "100 accounts a day"),
        (" 1 account a day", "1 accounts a day"),
    ],
)
def test_a_threshold_is_a_probability_or_a_budget(given: object, read: object) -> None:
    assert settings.load(threshold=given).threshold == read


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("1.5", "input should be less than 1, or a budget such as '100 accounts a day'"),
        ("0", "input should be greater than 0, or"),
        ("nan", "must be a probability, or"),
        ("100 cards a day", "must be a probability, or a budget such as '100 accounts a day'"),
        ("0 accounts a day", "must be a probability, or"),
    ],
)
def test_another_threshold_is_one_line(given: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"--threshold = '{given}': {reason}"):
        settings.load(threshold=given)
