"""Counts: formats numbers with their nouns, and ages, for people."""

from __future__ import annotations

from datetime import datetime


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 alert`` or ``2,000 batches``."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"


def age(then: datetime, now: datetime) -> str:
    """Return the time between two moments in its largest unit, such as ``3 min``."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
