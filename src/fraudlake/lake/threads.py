"""Threads: runs independent calls concurrently, since they mostly wait for queries or commits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def call_all(calls: Collection[Callable[[], None]]) -> None:
    """Make all calls concurrently, each in a thread with the log fields of this one, and wait until all have ended.

    If calls have failed, the error of the first of them, in their order, is raised.
    """
    if not calls:
        return
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(copy_context().run, call) for call in calls]
    for one in running:
        one.result()
