"""Source: where transactions come from, as a module of this folder declares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings
    from fraudlake.streams.stream import Stream


@dataclass(frozen=True)
class Source:
    """Where transactions come from."""

    streams: Callable[[Lake, bool], list[Stream]]
    """Returns the streams that append to bronze; with True, after reading rejected files again that can be read now.

    It raises a UsageError if a checkpoint belongs to another source, and a FraudlakeError if there is nothing to read,
    now or ever.
    """
    require: Callable[[Settings], None] = lambda settings: None
    """Raises a UsageError before Spark starts, if nothing can come under these settings."""
    unread: Callable[[Lake], int | None] = lambda lake: None
    """Counts the transactions that bronze does not hold yet; None if the ledger of files counts them."""
