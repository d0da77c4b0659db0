"""TOML files of declarations: reads rules or features in the form that the settings have."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fraudlake.errors import UsageError, file_reason
from fraudlake.text import json_text, text_file


def read(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding, or not TOML.
    """
    return tomllib.loads(text_file.text(file))


def entries(file: Path, name: str) -> list[Any]:
    """Return the entries ``[[name]]`` of a file that must have no other content.

    Raises:
        UsageError: the file cannot be read, or has other content.
    """
    try:
        content = read(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {file_reason(error)}") from None
    listed = content.pop(name, None)
    if content or not isinstance(listed, list):
        further = ", ".join(content) or "nothing"
        raise UsageError(f"{file}: a file of {name} has [[{name}]] entries and nothing else, not {further}")
    return listed


def entry(name: str, fields: Mapping[str, Any]) -> str:
    """Write an entry ``[[name]]`` of texts, numbers and booleans."""
    return "\n".join([f"[[{name}]]", *(f"{key} = {json_text.dumps(value)}" for key, value in fields.items())])
