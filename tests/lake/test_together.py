"""Together: calls of many threads become few, and each thread gets its own answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from fraudlake.lake.together import Together


def test_what_is_asked_for_during_a_call_is_answered_by_the_next_one() -> None:
    calls: list[Sequence[int]] = []
    is_running, may_end = threading.Event(), threading.Event()

    def doubled(numbers: Sequence[int]) -> list[int]:
        calls.append(numbers)
        is_running.set()
        assert may_end.wait(10)
        return [2 * number for number in numbers]

    together = Together(doubled)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(together, 0)
        assert is_running.wait(10)
        others = [pool.submit(together, number) for number in range(1, 9)]
        while len(together._waiting) < 8:
            time.sleep(0.01)
        may_end.set()
        assert [first.result(), *(other.result() for other in others)] == [2 * number for number in range(9)]
    assert [sorted(numbers) for numbers in calls] == [[0], [*range(1, 9)]]


def test_an_error_is_that_of_all_who_waited_for_the_call_and_of_nobody_after_it() -> None:
    def answered(numbers: Sequence[int]) -> list[int]:
        if 1 in numbers:
            raise ValueError(f"no {numbers}")
        return [*numbers]

    together = Together(answered)
    with pytest.raises(ValueError, match="no"):
        together(1)
    assert together(2) == 2
