"""JSON files: one object, replaced as a whole, so that a reader never sees half of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write(file: Path, value: Mapping[str, object]) -> None:
    """Write an object to a file, atomically."""
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(value) + "\n")
    draft.replace(file)
