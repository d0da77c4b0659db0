"""Lock: one process at a time runs a step of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fraudlake.errors import FraudlakeError


@contextmanager
def exclusive(file: Path, step: str, place: Path) -> Iterator[None]:
    """Lock a step for this process; the operating system releases the lock when the process ends, however it ends.

    Args:
        file: the lock's file; its folder is created if necessary.
        step: the step's name, for the message.
        place: the lake, for the message.

    Raises:
        FraudlakeError: another process has the lock.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FraudlakeError(
            f"another process already runs '{step}' on {place}: let it finish, or stop it first"
        ) from None
    try:
        yield
    finally:
        lock.release()
