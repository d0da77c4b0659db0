"""Answers: rows of queries are kept in memory for as long as the tables that were read stay as they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa

_SHARE = 0.1
"""Share of the memory that one answer may take."""
_OVERHEAD = 1_000
"""Bytes of an answer without rows, about."""


@dataclass(eq=False)
class _Answer:
    commits: Hashable
    rows: Future[pa.Table] = field(default_factory=Future)
    size: int = 0
    """Bytes; 0 until it is there."""


class Answers:
    """The answers that were asked for last. Of several people who ask the same at once, one waits for the tables."""

    def __init__(self, most: int) -> None:
        """Keep so many bytes."""
        self._most, self._size = most, 0
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._lock = Lock()

    def get(self, statement: str, commits: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the rows of a query.

        Args:
            statement: the query.
            commits: what tells the present versions of its tables from all others.
            read: runs it, if it was not run on these versions.
        """
        with self._lock:
            answer = self._answers.get(statement)
            is_new = answer is None or answer.commits != commits
            if answer is None or is_new:
                self._remove(statement)
                answer = self._answers[statement] = _Answer(commits)
            self._answers.move_to_end(statement)
        if is_new:
            self._read(statement, answer, read)
        return answer.rows.result()

    def _read(self, statement: str, answer: _Answer, read: Callable[[], pa.Table]) -> None:
        try:
            rows = read()
        except BaseException as error:
            answer.rows.set_exception(error)
            with self._lock:
                if self._answers.get(statement) is answer:
                    self._remove(statement)
            return
        answer.rows.set_result(rows)
        with self._lock:
            if self._answers.get(statement) is not answer:  # a newer one has replaced it
                return
            answer.size = rows.nbytes + len(statement) + _OVERHEAD
            self._size += answer.size
            if answer.size > self._most * _SHARE:
                self._remove(statement)
            while self._size > self._most:
                self._remove(next(iter(self._answers)))

    def _remove(self, statement: str) -> None:
        answer = self._answers.pop(statement, None)
        if answer is not None:
            self._size -= answer.size
