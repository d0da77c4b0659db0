"""The draw: picks accounts of a day at random for review, so that fraud which nothing flagged can be estimated."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from datetime import date


def size(queue_size: int, explore: float) -> int:
    """Return the number of items to draw for a queue, by the share ``explore`` of its size."""
    return round(explore * queue_size)


def drawn(accounts: Iterable[str], count: int, day: date, seed: int) -> list[str]:
    """Draw ``count`` accounts uniformly without replacement, or all if there are fewer.

    The draw is deterministic: it takes the accounts with the smallest SHA-256 of seed, day and account.
    """

    def place(account: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{day}\n{account}".encode()).digest()

    return heapq.nsmallest(count, set(accounts), key=place)
