"""Threads: independent work that mostly waits, for queries or for commits, is done at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def call_all(calls: Collection[Callable[[], None]]) -> None:
    """Make all calls at the same time, each in a thread with the log fields of this one.

    Returns when all have ended. Of those that failed, it raises the error of the first in their order.
    """
    if not calls:
        return
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(copy_context().run, call) for call in calls]
    for one in running:
        one.result()
