"""Overlap of two rules' alerts, counted by hand."""

from __future__ import annotations

import random

import pytest

from fraudlake.detection.comparison import Span, overlap_of


@pytest.mark.parametrize(
    ("own", "other", "overlap"),
    [
        ((10, 20), (10, 20), True),
        ((10, 20), (20, 30), True),
        ((10, 20), (0, 10), True),
        ((10, 20), (12, 13), True),
        ((12, 13), (10, 20), True),
        ((10, 10), (10, 10), True),
        ((10, 20), (21, 30), False),
        ((10, 20), (0, 9), False),
    ],
)
def test_two_alerts_overlap_if_a_moment_is_in_both(own: tuple[int, int], other: tuple[int, int], overlap: bool) -> None:
    expected = (1, 0, 0) if overlap else (0, 1, 1)
    assert overlap_of([Span("1", *own)], [Span("1", *other)]) == expected
    assert overlap_of([Span("1", *own)], [Span("2", *other)]) == (0, 1, 1)


def test_each_side_counts_its_own_alerts() -> None:
    own = [Span("1", 0, 100), Span("1", 200, 300), Span("2", 0, 5)]
    others = [Span("1", 10, 11), Span("1", 20, 21), Span("1", 150, 160), Span("3", 0, 5)]
    assert overlap_of(own, others) == (1, 2, 2)
    assert overlap_of(own, []) == (0, 3, 0)
    assert overlap_of([], others) == (0, 0, 4)


def test_it_is_what_a_comparison_of_all_pairs_gives() -> None:
    draw = random.Random(7)

    def some(number: int) -> list[Span]:
        begins = [draw.randrange(1000) for _ in range(number)]
        return [Span(str(draw.randrange(5)), begin, begin + draw.choice([0, 3, 30, 200])) for begin in begins]

    own, others = some(200), some(40)
    pairs = [
        (a, b)
        for a, one in enumerate(own)
        for b, other in enumerate(others)
        if one.account_id == other.account_id and one.begin <= other.end and other.begin <= one.end
    ]
    both = len({a for a, _ in pairs})
    assert overlap_of(own, others) == (both, 200 - both, 40 - len({b for _, b in pairs}))
    assert 0 < both < 200
