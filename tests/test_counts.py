"""Counts: one thing is singular, and any other number is plural."""

from __future__ import annotations

import pytest

from fraudlake.text.counts import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "alert", "0 alerts"),
        (1, "alert", "1 alert"),
        (1, "micro-batch", "1 micro-batch"),
        (2000, "micro-batch", "2,000 micro-batches"),
    ],
)
def test_a_noun_agrees_with_its_number(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
