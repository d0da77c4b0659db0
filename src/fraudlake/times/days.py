"""Days: divides days by the number of their rows, so that the rows of a part fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date


def divided(rows: Mapping[date, int], most: int) -> list[list[date]]:
    """Divide days, each with the number of its rows, into parts of at most ``most`` rows; a day with more is alone."""
    parts: list[list[date]] = []
    total = 0
    for day, number in sorted(rows.items()):
        if not parts or total + number > most:
            parts.append([])
            total = 0
        parts[-1].append(day)
        total += number
    return parts
