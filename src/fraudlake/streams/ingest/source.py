"""Source: the declaration that each module of this folder makes of a source of transactions."""

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
    """A source of transactions."""

    streams: Callable[[Lake, bool], list[Stream]]
    """Returns the streams that append to bronze; with True, they first retry rejected files.

    It raises a UsageError if a checkpoint belongs to another source, and a FraudlakeError if there is nothing to read,
    now or ever.
    """
    require: Callable[[Settings], None] = lambda settings: None
    """Raises a UsageError, before Spark starts, if the settings cannot give any rows."""
    unread: Callable[[Lake], int | None] = lambda lake: None
    """Counts the transactions that bronze lacks; None if the ledger of files counts them."""
