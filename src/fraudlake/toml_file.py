"""TOML files of declarations: rules or features, as the settings have them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fraudlake.errors import UsageError, first_line


def entries(file: Path, name: str) -> list[Any]:
    """Return the entries ``[[name]]`` of a file that has nothing else.

    Raises:
        UsageError: the file cannot be read, or has something else.
    """
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {first_line(error)}") from None
    listed = content.pop(name, None)
    if content or not isinstance(listed, list):
        further = ", ".join(content) or "nothing"
        raise UsageError(f"{file}: a file of {name} has [[{name}]] entries and nothing else, not {further}")
    return listed
