"""A file of the landing folder, in one version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A version of a file in the landing folder.

    ``source`` is its path relative to that folder, as :func:`fraudlake.sources.landing.relative` writes it. Rows
    refer to their file by it, so they do not change when the folder moves. A file is rewritten if ``size`` (bytes)
    or ``modified`` (microseconds since 1970 UTC) differ. Both are None for a file that is gone, and for other
    objects that must not be opened: a folder named like a file, a named pipe, a socket or a device. ``inode`` is
    the file's inode number on a disk, which stays when the file is renamed; None in a workspace.
    """

    path: str
    source: str
    size: int | None
    modified: int | None
    inode: int | None = None
