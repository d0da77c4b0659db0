"""Review: the items of its queues that nobody has decided on in time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

from fraudlake.review import late

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@dataclass(frozen=True)
class Review:
    """Items that have been open for longer than the setting ``review_limit``."""

    late_items: int = 0
    oldest_late_item: datetime | None = None
    """When the queue of the oldest was built (UTC)."""
    oldest_late_day: date | None = None
    """The day of that queue."""


def read(lake: Lake) -> Review:
    """Read the figures."""
    counted = late.count(lake.store)
    return Review(counted.items, counted.oldest_at, counted.oldest_day)
