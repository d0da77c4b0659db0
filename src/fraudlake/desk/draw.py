"""The draw: a day's accounts become those that are looked at by chance alone."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from datetime import date


def size(queue_size: int, explore: float) -> int:
    """Return how many items of a queue are drawn, of a share ``explore`` of it."""
    return round(explore * queue_size)


def drawn(accounts: Iterable[str], count: int, day: date, seed: int) -> list[str]:
    """Draw so many accounts, each with the same probability, without replacement; all, if there are no more.

    Of the same accounts, the same day and the same seed it draws the same ones: those whose SHA-256 with day and seed
    is smallest.
    """

    def place(account: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{day}\n{account}".encode()).digest()

    return heapq.nsmallest(count, set(accounts), key=place)
