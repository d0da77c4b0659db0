"""JSON files: one object, replaced as a whole, so that a reader never sees half of it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def write(file: Path, value: Mapping[str, object]) -> None:
    """Write an object to a file, atomically."""
    write_text(file, _text(value))


def write_text(file: Path, text: str) -> None:
    """Write a text to a file, atomically: JSON of another program may have lines before the object."""
    with _draft(file, text) as draft:
        draft.replace(file)


def create(file: Path, value: Mapping[str, object]) -> bool:
    """Write an object to a new file, atomically; return False if another process has created the file first."""
    with _draft(file, _text(value)) as draft:
        try:
            os.link(draft, file)
        except FileExistsError:
            return False
        except OSError:  # a volume in a workspace has no links
            return _create_exclusively(file, draft.read_bytes())
    return True


def _create_exclusively(file: Path, content: bytes) -> bool:
    try:
        with file.open("xb") as new:
            new.write(content)
    except FileExistsError:
        return False
    return True


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value) + "\n"


@contextmanager
def _draft(file: Path, text: str) -> Iterator[Path]:
    """Write a text to a file that no other process writes, and remove it after the block."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}.tmp")
    try:
        draft.write_text(text)
        yield draft
    finally:
        draft.unlink(missing_ok=True)
