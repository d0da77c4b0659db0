"""Claims: keeps people who ask for the next item at the same time from getting the same one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Claims:
    """The items that this process is about to give to somebody."""

    def __init__(self) -> None:
        """Begin without claims."""
        self._claimed: set[str] = set()
        self._lock = Lock()

    @contextmanager
    def claim(self, item: str) -> Iterator[bool]:
        """Claim an item within the block; yield whether nobody else has claimed it."""
        with self._lock:
            is_free = item not in self._claimed
            self._claimed |= {item}
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._claimed -= {item}
