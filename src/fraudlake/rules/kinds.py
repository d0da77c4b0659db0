"""Kinds of rule: what a rule of any kind is made of, and what it gives.

A kind is a module with a model of its parameters, whose ``kind`` tells which it is. :meth:`check` holds the rule
against the columns of the lake and returns a :class:`Check`, which evaluates rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from pydantic import Discriminator, Tag

from fraudlake.rules.pattern import PatternRule
from fraudlake.rules.small_then_large import FraudRule
from fraudlake.rules.threshold import ThresholdRule

if TYPE_CHECKING:
    import pyarrow as pa


def _kind(rule: Any) -> str:
    """Return a rule's kind; one without is of today's only kind."""
    return str(rule.get("kind", "small_then_large") if isinstance(rule, dict) else rule.kind)


Rule = Annotated[
    Annotated[FraudRule, Tag("small_then_large")]
    | Annotated[ThresholdRule, Tag("threshold")]
    | Annotated[PatternRule, Tag("pattern")],
    Discriminator(_kind),
]
"""A rule of any kind."""


class Alert(NamedTuple):
    """An alert: the rows that raised it, in order, and what is known of it.

    ``rows`` are numbers of rows of the table that was evaluated, ``roles`` what each is called; the last one completed
    the alert. ``measures`` are ready for JSON.
    """

    rows: Sequence[int]
    roles: Sequence[str]
    measures: Mapping[str, Any]


class Check(Protocol):
    """A rule that was held against the columns: it can evaluate rows."""

    @property
    def partition_by(self) -> Sequence[str]:
        """The columns of silver whose values the rows of an alert share; others are evaluated apart."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns of silver that it reads."""

    def alerts(self, rows: pa.Table) -> list[Alert]:
        """Return the alerts of rows, which hold whole partitions.

        Args:
            rows: :attr:`columns`, ``source`` and ``position``, in any order.
        """
