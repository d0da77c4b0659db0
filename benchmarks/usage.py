"""What commands use: wall time, and processor time, bytes and memory of all their processes (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_SAMPLES_APART = 1.0  # seconds


@dataclass
class Usage:
    """Seconds of wall time and of processor time (user and system), bytes read and written, and the peak of memory.

    Bytes read are those that programs asked for, from the cache or a pipe as well as from the disk; bytes written are
    those for the disk. A page of memory that processes share counts once.
    """

    wall: float = 0.0
    processor: float = 0.0
    read: int = 0
    written: int = 0
    memory: int = 0


@contextlib.contextmanager
def measured(root: psutil.Process | None = None) -> Iterator[Usage]:
    """Yield the usage of a process and all below it, complete when the block ends. Default: of this one's children.

    The processes of a command that has ended may outlive it, as Java does; they are waited for, and count.
    """
    root = root or psutil.Process()
    others = set(root.children())
    if root.pid == os.getpid():
        # What a command leaves running becomes a child of this process, which inherits its figures by waiting for it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    usage, done = Usage(), threading.Event()

    def watch() -> None:
        while not done.wait(_SAMPLES_APART):
            usage.memory = max(usage.memory, _memory(root))

    watcher = threading.Thread(target=watch)
    begun, before = time.monotonic(), _counters(root)
    watcher.start()
    try:
        yield usage
        usage.wall = time.monotonic() - begun
        while root.pid == os.getpid() and (left := set(root.children()) - others):
            os.waitpid(left.pop().pid, 0)
    finally:
        done.set()
        watcher.join()
    after = _counters(root)
    usage.processor, usage.read, usage.written = after[0] - before[0], after[1] - before[1], after[2] - before[2]


def family(root: psutil.Process | None = None) -> list[psutil.Process]:
    """Return a process, by default this one, and all below it."""
    root = root or psutil.Process()
    return [root, *root.children(recursive=True)]


def processor_seconds(root: psutil.Process | None = None) -> float:
    """Return the processor time of a process, by default this one, and all below it, also of those that have ended."""
    seconds = 0.0
    for process in family(root):
        with contextlib.suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4])
    return seconds


def _counters(root: psutil.Process) -> tuple[float, int, int]:
    """Return the seconds and bytes of a process and those below it; a process has those of the ones it waited for."""
    seconds, read, written = 0.0, 0, 0
    for process in family(root):
        with contextlib.suppress(psutil.Error), process.oneshot():
            times, files = process.cpu_times(), process.io_counters()
            own = 0.0 if process.pid == os.getpid() else times.user + times.system
            seconds += own + times.children_user + times.children_system
            read += files.read_chars
            written += files.write_bytes
    return seconds, read, written


def _memory(root: psutil.Process) -> int:
    used = 0
    for process in family(root):
        with contextlib.suppress(psutil.Error):
            used += 0 if process.pid == os.getpid() else process.memory_full_info().pss
    return used
