"""Answers: a query is run once for each state of its tables, and memory is bounded."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from fraudlake.lake.answers import Answers


class Asked:
    """Counts how often a query was run."""

    def __init__(self, rows: int = 1) -> None:
        self.times, self._rows = 0, rows

    def __call__(self) -> pa.Table:
        self.times += 1
        return pa.table({"number": pa.array(range(self._rows), pa.int64())})


def test_a_query_is_run_again_only_after_another_commit() -> None:
    answers, asked = Answers(1 << 20), Asked()
    for commits in (("a", 1), ("a", 1), ("a", 2), ("a", 2), ("a", 1)):
        assert answers.get("SELECT", commits, asked)["number"].to_pylist() == [0]
    assert asked.times == 3


def test_several_who_ask_at_once_wait_for_one_answer() -> None:
    answers, is_asked, may_answer = Answers(1 << 20), threading.Event(), threading.Event()

    def slow() -> pa.Table:
        assert not is_asked.is_set()
        is_asked.set()
        may_answer.wait(10)
        return pa.table({"number": [7]})

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(answers.get, "SELECT", 1, slow) for _ in range(8)]
        is_asked.wait(10)
        may_answer.set()
        assert [one.result(10)["number"].to_pylist() for one in asked] == [[7]] * 8


def test_an_error_is_no_answer() -> None:
    answers = Answers(1 << 20)

    def fail() -> pa.Table:
        raise ValueError("a file is gone")

    with pytest.raises(ValueError, match="a file is gone"):
        answers.get("SELECT", 1, fail)
    assert len(answers.get("SELECT", 1, Asked())) == 1


def test_the_answers_that_were_asked_for_last_are_kept() -> None:
    answers = Answers(100_000)
    asked = {statement: Asked(1_000) for statement in "abcdefghijklmn"}  # 8,000 bytes and the overhead, each
    for statement, one in asked.items():
        answers.get(statement, 1, one)
        answers.get("a", 1, asked["a"])
    for statement in "ban":
        answers.get(statement, 1, asked[statement])
    assert (asked["a"].times, asked["b"].times, asked["n"].times) == (1, 2, 1)


def test_a_large_answer_does_not_replace_all_others() -> None:
    answers, small, large = Answers(100_000), Asked(), Asked(10_000)
    for _ in range(2):
        answers.get("small", 1, small)
        assert len(answers.get("large", 1, large)) == 10_000
    assert (small.times, large.times) == (1, 2)
