"""Landing: lists the finished files of a folder that Flink writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import quote

from fraudlake.bronze import parquet
from fraudlake.sources import links
from fraudlake.sources.file import File


def is_finished(path: str) -> bool:
    """Return whether a path, relative to the landing folder, names a file that Flink has committed.

    It is not if the name of the file, or of a folder above it, starts with ``.`` or ``_`` or contains
    ``.inprogress.``, or ends in ``._COPYING_``: a Hadoop copy in progress, which Spark ignores too.
    """
    return all(
        not name.startswith((".", "_")) and ".inprogress." not in name and not name.endswith("._COPYING_")
        for name in path.split("/")
    )


def files(folder: str) -> Iterator[File]:
    """List the finished files of a landing folder, and others with such names: empty folders, pipes, devices."""
    for parent, folders, names in links.walk(folder):
        folders[:] = [name for name in folders if is_finished(name)]
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118 - 20 times as fast as Path
            file = current_file(path, folder)
            if is_finished(name) and file is not None:
                yield file
        if not folders and not names and parent != folder and _is_named_like_a_file(parent):
            yield File(parent, relative(parent, folder), None, None)


def current_file(path: str, folder: str) -> File | None:
    """Return a file as it is now, without a size if it is not a regular file; None if it is gone."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return file_of(path, folder, status) if parquet.other_kind(status.st_mode) is None else missing_file(path, folder)


def file_of(path: str, folder: str, status: os.stat_result) -> File:
    """Return a file, given the operating system's status of it."""
    return File(path, relative(path, folder), status.st_size, status.st_mtime_ns // 1000, status.st_ino)


def missing_file(path: str, folder: str) -> File:
    """Return a file that is gone or not regular: its size and time are None."""
    return File(path, relative(path, folder), None, None)


def relative(path: str, folder: str) -> str:
    """Return a path relative to the landing folder, as a unique text."""
    return text(path.removeprefix(folder.rstrip("/") + "/"))


def text(path: str) -> str:
    """Write the bytes of a path that are not UTF-8, surrogates in Python, as ``//xfc``; paths never contain ``//``."""
    return re.sub("[\udc80-\udcff]", lambda byte: f"//x{ord(byte[0]) - 0xDC00:02x}", path)


def local_path(uri: str) -> str:
    """Strip Hadoop's scheme from a path, in which Hadoop does not escape characters such as blanks, ``%`` or ``#``."""
    return "/" + uri.removeprefix("file:").lstrip("/")


def uri(path: str) -> str:
    """Return a path as in the checkpoint of Spark's file source: characters not allowed in URIs are escaped (4.2)."""
    escaped = (quote(one, safe="/;:@&=+$,_-!.~'()*") if one.isascii() or one.isspace() else one for one in path)
    return f"file://{''.join(escaped)}"


def literal(path: str) -> str:
    """Escape the characters of a path that Hadoop would read as a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def _is_named_like_a_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("part-") or name.endswith(".parquet")
