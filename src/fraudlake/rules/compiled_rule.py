"""Compiled rules: the interface for evaluating a rule on rows, all at once or part by part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


MOST_ROWS = 100
"""The largest number of rows in the alert of a match: one half is the first rows, the other half the last rows."""
EVIDENCE_ROWS = "evidence_rows"
"""The measure with the number of all rows of an alert, if some are left out; the name is reserved."""


class Alert(NamedTuple):
    """An alert: the rows that raised it, in order, and its measures.

    ``rows`` are row numbers of the evaluated table, and ``roles`` are their names; the last row completed the alert.
    ``measures`` are JSON values. ``left_out`` is the number of rows that are left out in the middle.
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
    """Return the numbers from ``low`` up to ``high`` that evidence includes: the first and the last ones."""
    if high - low <= most:
        return range(low, high), range(high, high)
    return range(low, low + most // 2), range(high - (most - most // 2), high)


class Evaluation(NamedTuple):
    """The result of evaluating rows: alerts, and the rows that later rows may need.

    Alerts may be made as they are read: many alerts with their rows are larger than the rows that were evaluated.
    """

    alerts: Iterable[Alert]
    needed: NDArray[np.int64]
    """Numbers of the rows that a later alert may include or count, in the order in which they were processed."""
    state: Any = ()
    """Further state for the next part: a JSON value that only the rule understands."""


class CompiledRule(Protocol):
    """A rule that was compiled for the columns and can evaluate rows."""

    @property
    def partition_by(self) -> Sequence[str]:
        """The columns of silver by which rows are partitioned; the rows of an alert are of one partition."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of silver that the rule reads."""

    @property
    def look_back(self) -> timedelta | None:
        """The longest look-back in event time to the transactions on which an alert depends; None: unbounded."""

    def evaluate(self, rows: pa.Table, old_rows: int = 0, state: Any = (), now: int | None = None) -> Evaluation:
        """Evaluate rows of whole partitions, all at once or in consecutive parts.

        Args:
            rows: :attr:`columns`, ``source`` and ``position``. A part begins with the rows that the previous part still
                needs, in the order of the state, followed by new rows in any order.
            old_rows: the number of rows from the previous part.
            state: the ``state`` that the previous part returned.
            now: no row that follows has an earlier time, microseconds; None: no row follows.
        """

    def forget(self, state: Any, needed: pa.Table, accounts: Collection[str]) -> tuple[pa.Table, Any]:
        """Return the needed rows and the state without the given accounts.

        Args:
            state: the state that :meth:`evaluate` returned.
            needed: the needed rows that it returned: its columns, ``account_id``, ``source`` and ``position``.
            accounts: the accounts to forget.
        """
