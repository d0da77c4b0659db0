"""TOML files: the text of a file that a user names, and its declarations, as the settings have them."""

from __future__ import annotations

import codecs
import tomllib
from pathlib import Path
from typing import Any

from fraudlake.errors import UsageError, first_line

_UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def text(file: Path) -> str:
    """Return a file's text: UTF-8, or UTF-16 with its mark, as editors on Windows write it; with ``\\n`` for each line.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding.
    """
    content = file.read_bytes()
    encoding = "utf-16" if content.startswith(_UTF_16) else "utf-8-sig"
    try:
        return content.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line} is not UTF-8: save the file as UTF-8") from None


def read(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding, or not TOML.
    """
    return tomllib.loads(text(file))


def entries(file: Path, name: str) -> list[Any]:
    """Return the entries ``[[name]]`` of a file that has nothing else.

    Raises:
        UsageError: the file cannot be read, or has something else.
    """
    try:
        content = read(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {first_line(error)}") from None
    listed = content.pop(name, None)
    if content or not isinstance(listed, list):
        further = ", ".join(content) or "nothing"
        raise UsageError(f"{file}: a file of {name} has [[{name}]] entries and nothing else, not {further}")
    return listed
