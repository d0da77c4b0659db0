"""Days of aggregates are divided into parts that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest

from fraudlake.streams import refresh


@pytest.mark.parametrize(
    ("numbers", "parts"),
    [
        ([], []),
        ([0], [[1]]),
        ([60, 40, 1], [[1, 2], [3]]),
        ([10, 250, 10, 80], [[1], [2], [3, 4]]),
    ],
)
def test_days_come_in_parts_of_a_bounded_size_unless_one_is_larger(
    numbers: Sequence[int], parts: Sequence[Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "_AT_ONCE", 100)
    days = {date(2026, 3, day): number for day, number in enumerate(numbers, 1)}
    late_first = dict(reversed(days.items()))
    assert refresh.divided(late_first) == [[date(2026, 3, day) for day in part] for part in parts]
