"""Counts: numbers of things, as text for a person."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 alert`` or ``2,000 batches``."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"
