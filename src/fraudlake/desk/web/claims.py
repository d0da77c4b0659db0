"""Claims: of several people who ask for the next item at the same time, each gets another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Claims:
    """Items that are being taken: of several people who ask at once, each gets another one."""

    def __init__(self) -> None:
        """Begin with none."""
        self._claimed: set[str] = set()
        self._lock = Lock()

    @contextmanager
    def claim(self, item: str) -> Iterator[bool]:
        """Claim an item for a while, and say whether nobody else had."""
        with self._lock:
            is_free = item not in self._claimed
            self._claimed |= {item}
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._claimed -= {item}
