"""Answers: caches the rows of queries in memory until a table that they read gets a new commit."""

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
"""Approximate bytes of an answer without rows."""


@dataclass(eq=False)
class _Answer:
    commits: Hashable
    rows: Future[pa.Table] = field(default_factory=Future)
    size: int = 0
    """Bytes; 0 until the query has run."""


class Answers:
    """A cache that drops the least recently used answers; a query that several people send at once runs once."""

    def __init__(self, most: int) -> None:
        """Cache at most ``most`` bytes."""
        self._most = most
        self._size = 0
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._lock = Lock()

    def get(self, statement: str, commits: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the rows of a query.

        Args:
            statement: the query.
            commits: the current versions of its tables, in any form that can be compared.
            read: runs the query; called only if there is no answer for these versions.
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
