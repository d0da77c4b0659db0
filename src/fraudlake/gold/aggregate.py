"""An aggregate: transactions and alerts become a table with one row a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fraudlake.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.rules.small_then_large import SmallThenLargeRule


@dataclass(frozen=True)
class Aggregate:
    """A gold table that follows ``silver_transactions`` and ``silver_alerts``.

    ``keys`` are the columns that identify a group: ``date``, and ``account_id`` or nothing. ``compute`` makes all
    groups of the transactions (whole days, UTC), the alerts (of at least these days) and the live rules of
    small_then_large.
    """

    table: Table
    keys: tuple[str, ...]
    compute: Callable[[DataFrame, DataFrame, Sequence[SmallThenLargeRule]], DataFrame]
