"""Stop: SIGINT and SIGTERM end a command at its next safe point; a second signal ends it at once.

The next run continues wherever a process is killed, so Python's main thread may be interrupted anywhere except in a
:func:`deferred` block, which checks for the request itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_SECONDS = 0.2
"""A second signal within this time is the same one: ``timeout`` signals both the process and its group."""
_SHOW_CURSOR = b"\x1b[?25h"


class StoppedError(BaseException):
    """A signal has stopped the command. It is not an ``Exception``, so that code that handles failures ignores it."""

    def __init__(self, number: int, doing: str = "") -> None:
        """Stop because of a signal, given by its number; ``doing`` is what was in progress."""
        super().__init__(number)
        self.exit_code = 128 + number
        self.doing = doing
        self.progress = ""
        """The parts of the command that are done, and those that are left."""
        self.then = "what is committed stays, and the same command does the rest"
        """What happens next."""

    def __str__(self) -> str:
        """Describe in one line what is done and what is left."""
        by = signal.Signals(self.exit_code - 128).name
        doing = f" ({self.doing})" if self.doing else ""
        return "; ".join(part for part in (f"stopped by {by}{doing}", self.progress, self.then) if part)


class _Request:
    """The first signal that this process has received, and how it is handled."""

    number: int | None = None
    """The first signal."""
    at = 0.0
    is_handled = is_deferred = False
    interrupted: Callable[[], None] = staticmethod(lambda: None)


_request = _Request()


@contextmanager
def handled(is_program: bool = False) -> Iterator[None]:
    """Make SIGINT and SIGTERM raise :class:`StoppedError` in the block.

    Only Python's main thread can handle signals; in another one, such as that of a notebook's job, nothing changes.

    Args:
        is_program: whether a second signal ends the process, even while the main thread is in a library's code.
    """
    if _request.is_handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, _receive) for number in SIGNALS}
    _request.is_handled = True
    watch = _watch() if is_program else None
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if watch is not None:
            watch()
        _request.is_handled = False
        _request.number = None


@contextmanager
def deferred() -> Iterator[None]:
    """Let the block check for a signal itself, with :func:`is_requested`."""
    before = _request.is_deferred
    _request.is_deferred = True
    try:
        yield
    finally:
        _request.is_deferred = before


@contextmanager
def failing() -> Iterator[None]:
    """Treat an error in the block after a signal as the stop, not as a failure.

    Raises:
        StoppedError: the block failed after a signal.
    """
    try:
        yield
    except Exception:
        check()
        raise


def is_requested() -> bool:
    """Return whether there was a signal."""
    return _request.number is not None


def check(doing: str = "") -> None:
    """Stop here if there was a signal.

    Args:
        doing: what was in progress.

    Raises:
        StoppedError: there was a signal.
    """
    if _request.number is not None and threading.current_thread() is threading.main_thread():
        raise StoppedError(_request.number, doing)


@contextmanager
def restore_handlers(interrupted: Callable[[], None]) -> Iterator[None]:
    """Restore the handlers after Spark has started, since it replaces that of SIGINT (seen in PySpark 4.2).

    Args:
        interrupted: called from then on when a signal interrupts the main thread, which may be waiting for Java.
    """
    if not _request.is_handled or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as error:
        stopped = error if isinstance(error, StoppedError) else StoppedError(signal.SIGINT)
        stopped.doing = "starting Spark"
        raise stopped from None
    finally:
        signal.signal(signal.SIGINT, _receive)
    _request.interrupted = interrupted


def _receive(number: int, frame: FrameType | None) -> None:
    is_first = _request.number is None
    if is_first:
        _request.number = number
        _request.at = time.monotonic()
    elif time.monotonic() - _request.at < _SAME_SECONDS:
        return
    if is_first and _request.is_deferred:
        return
    _request.interrupted()
    raise StoppedError(_request.number or number)


def _watch() -> Callable[[], None]:
    """Start a thread that ends the process at a second signal; return a function that ends the thread.

    Python runs handlers only in the main thread, which a library's code may block for a minute, but writes the signal's
    number to a wakeup file at once.
    """
    received, written = os.pipe()
    os.set_blocking(written, False)
    before = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    errors = os.dup(2)  # while Spark starts, descriptor 2 is its log

    def read() -> None:
        first: float | None = None
        while number := os.read(received, 1):
            if number[0] not in SIGNALS:
                continue
            if first is None:
                first = time.monotonic()
            elif time.monotonic() - first >= _SAME_SECONDS:
                line = f"fraudlake: ended at once by {signal.Signals(number[0]).name}; the next run goes on\n"
                os.write(errors, (_SHOW_CURSOR if os.isatty(errors) else b"") + line.encode())
                os._exit(128 + number[0])

    thread = threading.Thread(target=read, name="signals", daemon=True)
    thread.start()

    def end() -> None:
        signal.set_wakeup_fd(before)
        os.close(written)
        thread.join()
        os.close(received)
        os.close(errors)

    return end
