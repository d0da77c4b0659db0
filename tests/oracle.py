"""The oracle: the rule as a person would write it, one row at a time. Nothing of the package is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    account_id: str
    time: int  # microseconds
    amount: float
    source: str = "part-0"
    position: int = 0


def alerts(
    rows: Iterable[Row], small_below: float = 1.0, large_above: float = 500.0, within: int = 60_000_000
) -> list[tuple[Row, Row]]:
    """Pairs (small, large), ordered by the large row; the rows are processed in the order given."""
    flags: dict[str, Row] = {}
    pairs = []
    for row in rows:
        small = flags.pop(row.account_id, None)
        if small and row.amount > large_above and abs(row.time - small.time) <= within:
            pairs.append((small, row))
        if row.amount < small_below:
            flags[row.account_id] = row
    return pairs


def in_event_time(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.source, row.position))
