from __future__ import annotations

import threading
from functools import partial
from typing import NoReturn

import pytest

from fraudlake.lake import threads
from fraudlake.process import logs


def test_calls_are_made_at_the_same_time() -> None:
    others = threading.Barrier(3, timeout=10)

    threads.call_all([lambda: others.wait() and None] * 3)

    assert not others.broken
    threads.call_all([])


def test_all_calls_end_before_the_first_error_is_raised() -> None:
    is_raised, ended = threading.Event(), []

    def fail(error: BaseException) -> NoReturn:
        is_raised.set()
        raise error

    def end() -> None:
        assert is_raised.wait(10)
        ended.append("third")

    with pytest.raises(SystemExit, match="first"):
        threads.call_all([partial(fail, SystemExit("first")), partial(fail, KeyError("second")), end])

    assert ended == ["third"]


def test_records_of_a_call_have_the_fields_of_its_micro_batch() -> None:
    seen = []
    with logs.inside(stream="aggregate", batch=3):
        threads.call_all([lambda: seen.append(logs._inside.get())] * 2)
    assert seen == [{"stream": "aggregate", "batch": 3}] * 2
