"""Links: detects the symbolic and hard links of a landing folder, so that each file is read under one name."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fraudlake.sources.file import File

Identity = tuple[int, int]
"""Device and inode of a file."""


def walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder as ``os.walk`` does; links are followed, except to a folder above them."""
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not _is_cycle(Path(parent, name))]
        yield parent, folders, names


def cycles(folder: str) -> list[Path]:
    """List the links to a folder above them."""
    links: list[Path] = []
    for parent, folders, _ in os.walk(folder, followlinks=True):
        cut = [name for name in folders if _is_cycle(Path(parent, name))]
        links += [Path(parent, name) for name in cut]
        folders[:] = [name for name in folders if name not in cut]
    return links


def outside_cycles(paths: Iterable[str], folder: str) -> Iterator[str]:
    """Return the paths below a folder that pass no link to a folder above the link: Spark follows these 40 times."""
    is_cut: dict[str, bool] = {}
    for path in paths:
        parent = path.rpartition("/")[0]
        if parent not in is_cut:
            is_cut[parent] = any(_is_cycle(part) for part in Path(path).parents if part.is_relative_to(folder))
        if not is_cut[parent]:
            yield path


def other_names(files: list[File], names: Iterator[File], folder: str, old_names: Container[str]) -> dict[str, str]:
    """Return the files that are only another name of a file in the folder.

    A file is read under a name that is known already, or else one without a symbolic link, or else the first by
    alphabet.

    Args:
        files: the files.
        names: lists the files of the folder.
        folder: the folder.
        old_names: names of files that were read before, relative to the folder.

    Returns:
        The name under which the file is read, by the other name; both relative to the folder.
    """
    # One system call shows that a file is not a link; only links need a listing of the folder.
    linked_folders = {parent for parent in {_parent(file) for file in files} if _passes_link(parent, folder)}
    linked = [file for file in files if _parent(file) in linked_folders or _is_link(file)]
    identities = {file.source: _identity(file) for file in linked}
    alike: dict[Identity, list[File]] = {identity: [] for identity in identities.values() if identity}
    for file in names if alike else ():
        identity = _identity(file)
        if identity in alike:
            alike[identity].append(file)
    first = {
        identity: min(
            present, key=lambda file: (file.source not in old_names, _passes_link(file.path, folder), file.source)
        )
        for identity, present in alike.items()
        if present
    }
    return {
        source: first[identity].source
        for source, identity in identities.items()
        if identity in first and first[identity].source != source
    }


def _is_cycle(path: Path) -> bool:
    return path.is_symlink() and path.resolve() in {above.resolve() for above in path.parents}


def _is_link(file: File) -> bool:
    try:
        status = os.lstat(file.path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1


def _passes_link(path: str, folder: str) -> bool:
    """Return whether a path has a symbolic link below the folder."""
    return os.path.realpath(path) != os.path.realpath(folder) + path.removeprefix(folder.rstrip("/"))


def _parent(file: File) -> str:
    return file.path.rpartition("/")[0]


def _identity(file: File) -> Identity | None:
    try:
        status = os.stat(file.path)  # noqa: PTH116 - 20 times as fast as Path
    except OSError:
        return None
    return status.st_dev, status.st_ino
