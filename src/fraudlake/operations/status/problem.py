"""Problem: something that is wrong with a lake, with its remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What is wrong, and what to do about it."""

    symptom: str
    remedy: str

    def __str__(self) -> str:
        """Return a sentence for a person."""
        return f"{self.symptom}: {self.remedy}"
