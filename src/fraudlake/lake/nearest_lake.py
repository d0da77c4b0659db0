"""Nearest lake: if a folder is not a lake, names the lake that was probably meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path

from fraudlake.process.host import is_folder

FORMAT_FILE = "lake.json"
"""The file that makes a folder a lake, and names the version of its layout."""


def missing(root: Path) -> str:
    """Return a message that a folder is not a lake, with the nearest lake or the way to create one."""
    lake = find(root)
    nearest = f"; the nearest one is {lake}" if lake else ""
    return f"there is no lake in {root}: a command that writes makes one, such as 'fraudlake ingest'{nearest}"


def find(root: Path) -> Path | None:
    """Return the lake above or below a folder, or else the one with the most similar path, if any is near."""

    def likeness(lake: Path) -> tuple[bool, float]:
        is_above_or_below = root.is_relative_to(lake) or lake.is_relative_to(root)
        return is_above_or_below, SequenceMatcher(None, str(lake), str(root)).ratio()

    lakes = {folder for folder in _around(root) if _is_lake(folder)}
    return max(sorted(lakes), key=likeness, default=None)


def _around(root: Path) -> Iterator[Path]:
    """List the parent, sibling and child folders; for a path with a wrong middle, those with the same end."""
    there = next(folder for folder in (root, *root.parents) if is_folder(folder))
    yield from (there, *there.parents)
    below = root.relative_to(there).parts[1:]
    for folder in {there, root.parent}:
        with suppress(OSError):
            for one in folder.iterdir():
                yield one
                yield one.joinpath(*below)


def _is_lake(folder: Path) -> bool:
    with suppress(OSError):
        return (folder / FORMAT_FILE).is_file()
    return False
