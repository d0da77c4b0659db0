"""Compaction: merges a local table's small files, under a lock that lets one process at a time rewrite them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from fraudlake.lake import conflict, data_file

if TYPE_CHECKING:
    from fraudlake.lake.data_file import DataFile
    from fraudlake.lake.writer import Writer
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

_COMPACTED = 16 << 20
"""Size of a compacted file, if the table is not clustered."""


def excluded(root: Path, table: Table, wait: float = -1) -> AbstractContextManager[Any]:
    """Lock the rewriting of a table of the lake under ``root``, to the end of the block.

    Args:
        root: the lake's folder.
        table: the table.
        wait: seconds to wait for another process that rewrites it; -1 waits forever.

    Raises:
        TimeoutError: the other process has not ended.
    """
    locks = root / "locks"
    locks.mkdir(exist_ok=True)
    return FileLock(locks / f"rewriting_{table.name}").acquire(wait)


def compact(
    root: Path,
    table: Table,
    settings: Settings,
    files: Callable[[], list[DataFile]],
    writer: Callable[[], Writer],
) -> None:
    """Compact a table's small files, unless another process does so or has just done it."""
    size = settings.target_file_bytes if table.zorder else _COMPACTED
    with suppress(TimeoutError), excluded(root, table, wait=0):
        chosen = [file for group in data_file.by_partition(files()) for file in data_file.small(group, size)]
        if chosen:
            try:
                writer().rewrite(chosen, (), size)
            except Exception as error:
                if not conflict.is_conflict(error):
                    raise
