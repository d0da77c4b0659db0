"""An aggregate: a table with one row per group of other tables' rows, updated when these tables get rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fraudlake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Aggregate:
    """A table of gold that ``fraudlake aggregate`` updates when its sources get rows.

    ``keys`` are the columns that identify a group.
    """

    table: Table
    keys: tuple[str, ...]
    touches: Mapping[Table, tuple[str, ...]]
    """SQL expressions, by source, for the group that a new row touches, in the same columns for all sources. The order
    of the sources is part of a stream's checkpoint."""

    @property
    def step(self) -> str:
        """The name of its stream, unless it shares a stream: see :func:`by_sources`."""
        return self.table.name.removeprefix("gold_")

    @property
    def sources(self) -> tuple[Table, ...]:
        """The tables whose new rows update it."""
        return tuple(self.touches)


@dataclass(frozen=True)
class GroupAggregate(Aggregate):
    """An aggregate whose groups are each computed from the transactions of one day.

    ``keys`` are the columns of ``touches``. ``date``, the day (UTC), is one of them; any others may be added, such as
    an account, an hour or a declared column.
    """

    compute: Callable[..., DataFrame]
    """Returns the table's rows of all groups. Arguments: ``silver_transactions`` of whole days, ``silver_alerts`` of
    these days or more, and the live rules of the kind small_then_large."""
    adds_amounts: bool = False
    """Whether ``compute`` also takes ``summed``, the amount to add up, in SQL."""


def by_sources(aggregates: Iterable[GroupAggregate]) -> list[list[GroupAggregate]]:
    """Group aggregates by their sources: those with the same ones share a stream, named after the first of them."""
    shared = defaultdict(list)
    for aggregate in aggregates:
        shared[aggregate.sources].append(aggregate)
    return list(shared.values())
