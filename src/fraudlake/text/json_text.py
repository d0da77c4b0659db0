"""JSON text: writes values as JSON that every parser accepts, even infinite numbers and NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def dumps(value: Any, separators: tuple[str, str] | None = None, ensure_ascii: bool = True) -> str:
    """Return a value as one line of JSON; a value without a type in JSON, such as a date, becomes a string.

    JSON has no infinite numbers and no NaN (RFC 8259), so they become the strings ``Infinity``, ``-Infinity`` and
    ``NaN``, as in Spark's ``to_json`` and the JSON format of Protocol Buffers.
    """
    return json.dumps(_finite(value), default=str, separators=separators, ensure_ascii=ensure_ascii, allow_nan=False)


def lines(text: str) -> list[str]:
    """Return the lines of JSON, of which each is a value; they end at line feeds only.

    ``str.splitlines`` would also split within a string that has a U+2028, which JSON allows.
    """
    return [line for line in text.split("\n") if line]


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {_finite(name): _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
