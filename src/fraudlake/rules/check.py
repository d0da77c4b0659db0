"""Check: a rule that was checked against the columns becomes what evaluates rows, all at once or part by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from fraudlake.match_recognize.matcher import OpenMatches


class Alert(NamedTuple):
    """An alert: the rows that raised it, in order, and what is known of it.

    ``rows`` are numbers of rows of the table that was evaluated, ``roles`` what each is called; the last one completed
    the alert. ``measures`` are ready for JSON.
    """

    rows: Sequence[int]
    roles: Sequence[str]
    measures: Mapping[str, Any]


class Evaluation(NamedTuple):
    """What rows give: alerts, and what later rows may need of them."""

    alerts: list[Alert]
    needed: NDArray[np.int64]
    """Numbers of the rows that a later alert may have or count, in the order in which they were processed."""
    open_matches: list[OpenMatches]
    """The open matches of a pattern, which have these rows."""


class Check(Protocol):
    """A rule that was checked against the columns: it can evaluate rows."""

    @property
    def partition_by(self) -> Sequence[str]:
        """The columns of silver whose values the rows of an alert share; others are evaluated apart."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of silver that it reads."""

    @property
    def look_back(self) -> timedelta | None:
        """How far before a transaction others may lie that its alert depends on, in event time; None: any distance."""

    def evaluate(
        self, rows: pa.Table, seen: int = 0, open_matches: Sequence[OpenMatches] = (), now: int | None = None
    ) -> Evaluation:
        """Evaluate rows, which hold whole partitions: at once, or in parts that follow each other.

        Args:
            rows: :attr:`columns`, ``source`` and ``position``; of a part first the rows that the part before needed,
                as they stood there, then new ones in any order.
            seen: the number of the former.
            open_matches: what the part before gave.
            now: no row that follows has an earlier time, microseconds; None: no row follows.
        """
