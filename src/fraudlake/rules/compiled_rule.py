"""Compiled rules: a rule that fits the columns evaluates rows, all at once or part by part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


MOST_ROWS = 100
"""Rows of a match that its alert names: one half are the first ones, the other half the last ones."""
EVIDENCE_ROWS = "evidence_rows"
"""The measure of an alert that has the number of all rows, if some are left out; no rule may have one of this name."""


class Alert(NamedTuple):
    """An alert: the rows that raised it, in order, and its measures.

    ``rows`` are numbers of rows of the table that was evaluated, ``roles`` their names; the last one completed
    the alert. ``measures`` are ready for JSON. ``left_out`` is the number of rows that are left out in the middle.
    """

    rows: Sequence[int]
    roles: Sequence[str]
    measures: Mapping[str, Any]
    left_out: int = 0

    @property
    def all_measures(self) -> dict[str, Any]:
        """The measures, and the number of all rows if some are left out."""
        counted = {EVIDENCE_ROWS: len(self.rows) + self.left_out} if self.left_out else {}
        return {**self.measures, **counted}


def shown(low: int, high: int, most: int = MOST_ROWS) -> tuple[range, range]:
    """Return the numbers from ``low`` up to ``high`` that evidence has: the first ones and the last ones."""
    if high - low <= most:
        return range(low, high), range(high, high)
    return range(low, low + most // 2), range(high - (most - most // 2), high)


class Evaluation(NamedTuple):
    """The result of evaluating rows: alerts, and the rows that later rows may need."""

    alerts: list[Alert]
    needed: NDArray[np.int64]
    """Numbers of the rows that a later alert may have or count, in the order in which they were processed."""
    state: Any = ()
    """Further state for the next part: a JSON value that only the rule understands."""


class CompiledRule(Protocol):
    """A rule that fits the columns: it can evaluate rows."""

    @property
    def partition_by(self) -> Sequence[str]:
        """The columns of silver whose values the rows of an alert share; others are evaluated apart."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of silver that it reads."""

    @property
    def look_back(self) -> timedelta | None:
        """Longest look-back in event time from a transaction to those that its alert depends on; None: unbounded."""

    def evaluate(self, rows: pa.Table, seen: int = 0, state: Any = (), now: int | None = None) -> Evaluation:
        """Evaluate rows, which hold whole partitions: at once, or in parts that follow each other.

        Args:
            rows: :attr:`columns`, ``source`` and ``position``; of a part first the rows that the part before needed,
                as in the state, then new ones in any order.
            seen: the number of the former.
            state: the ``state`` that the part before gave.
            now: no row that follows has an earlier time, microseconds; None: no row follows.
        """

    def forget(self, state: Any, needed: pa.Table, accounts: Collection[str]) -> tuple[pa.Table, Any]:
        """Return the needed rows and the state without accounts.

        Args:
            state: what :meth:`evaluate` gave.
            needed: the rows that it gave with it: its columns, ``account_id``, ``source`` and ``position``.
            accounts: the accounts to forget.
        """
