"""Days are divided into parts that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest

from fraudlake.times.days import divided


@pytest.mark.parametrize(
    ("numbers", "most", "parts"),
    [
        ([], 100, []),
        ([0], 100, [[1]]),
        ([60, 40, 1], 100, [[1, 2], [3]]),
        ([10, 250, 10, 80], 100, [[1], [2], [3, 4]]),
        ([4, 6, 1, 30, 2], 10, [[1, 2], [3], [4], [5]]),
    ],
)
def test_days_come_in_parts_of_a_bounded_size_unless_one_is_larger(
    numbers: Sequence[int], most: int, parts: Sequence[Sequence[int]]
) -> None:
    days = {date(2026, 3, day): number for day, number in enumerate(numbers, 1)}
    late_first = dict(reversed(days.items()))
    assert divided(late_first, most) == [[date(2026, 3, day) for day in part] for part in parts]
