"""Conflict: retries a write that failed because another writer committed first."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from fraudlake.process import stop

_ATTEMPTS = 6
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED")
_RANDOM = random.SystemRandom()

T = TypeVar("T")


def retried(write: Callable[[], T]) -> T:
    """Call ``write`` until it has no commit conflict, at most six times; it must be safe to repeat.

    Streams and maintenance write the same tables. If OPTIMIZE rewrites a file that a MERGE is about to change, Delta
    lets the first of the two commit and fails the second (Delta Lake documentation, "Concurrency control").

    Returns:
        What ``write`` returns.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return write()
        except Exception as error:
            if not is_conflict(error):
                raise
            stop.check()
            pause(attempt / 2)
    return write()


def pause(longest: float) -> None:
    """Wait for a random time of at most ``longest`` seconds: writers that wait equally long conflict again."""
    time.sleep(_RANDOM.uniform(0, longest))


def is_conflict(error: Exception) -> bool:
    """Return whether a write failed because another one committed first.

    Conflicts are recognised by name: Spark's exception classes differ between a plain session, a micro-batch and Spark
    Connect, and delta-rs is installed only with local lakes.
    """
    return type(error).__name__ == "CommitFailedError" or any(name in str(error) for name in _CONFLICTS)
