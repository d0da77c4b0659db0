"""Conflict: a write that another writer's commit overtook is done again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_ATTEMPTS = 6
_CONFLICTS = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED")

T = TypeVar("T")


def retried(write: Callable[[], T]) -> T:
    """Call ``write`` until no other commit comes between, a few times at most; it must be safe to repeat.

    Streams and maintenance write the same tables: where OPTIMIZE rewrites a file that a MERGE is about to change, Delta
    lets the first of the two commit and fails the other (Delta Lake documentation, "Concurrency control").
    """
    # By their names: Spark's exceptions differ between a plain session, a micro-batch and Spark Connect, and
    # delta-rs is only there where lakes are local.
    for attempt in range(1, _ATTEMPTS):
        try:
            return write()
        except Exception as error:
            if type(error).__name__ != "CommitFailedError" and not any(name in str(error) for name in _CONFLICTS):
                raise
            time.sleep(attempt / 2)
    return write()
