"""Time patterns: compiles patterns such as ``dd.MM.yyyy HH:mm:ss`` to regular expressions that yield ISO-8601."""

from __future__ import annotations

import re
from functools import cache

_DIGITS = {"yyyy": r"(\d{4})", "MM": r"(\d\d)", "dd": r"(\d\d)", "HH": r"(\d\d)", "mm": r"(\d\d)", "ss": r"(\d\d)"}
_OFFSETS = {
    "X": r"(Z|[+-]\d\d(?:\d\d)?)",
    "XX": r"(Z|[+-]\d{4})",
    "XXX": r"(Z|[+-]\d\d:\d\d)",
}
_REQUIRED = ("yyyy", "MM", "dd", "HH", "mm")
_PART = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")


@cache
def as_regex(pattern: str) -> tuple[str, str]:
    """Return a regular expression for the texts of a pattern, and the replacement that converts them to ISO-8601.

    The letters are those of Java and Spark: ``yyyy MM dd HH mm``, and optionally ``ss``, a fraction of one to nine
    ``S``, and an offset ``X``, ``XX`` or ``XXX``. A text in single quotes is literal. Both results mean the same in
    Python's ``re`` and Arrow's RE2.

    Raises:
        ValueError: the pattern has another letter, has one twice, or lacks one.
    """
    regex = ""
    end = 0
    groups: list[str] = []
    for part in _PART.finditer(pattern):
        if part.start() != end:
            break
        letters = part["letters"]
        end = part.end()
        if letters is None:
            regex += re.escape(part["quoted"] or part["other"] or "'")
            continue
        groups.append("S" if letters.startswith("S") else "X" if letters.startswith("X") else letters)
        regex += _letters_regex(letters)
    if end != len(pattern):
        raise ValueError("has an unterminated quote")
    return regex, _template(groups)


def _letters_regex(letters: str) -> str:
    symbols = _DIGITS | _OFFSETS
    if letters in symbols:
        return symbols[letters]
    if set(letters) == {"S"} and len(letters) <= 9:
        return rf"(\d{{{len(letters)}}})"
    raise ValueError(f"has '{letters}'; the known ones are yyyy, MM, dd, HH, mm, ss, S to SSSSSSSSS, X, XX and XXX")


def _template(groups: list[str]) -> str:
    """Return the replacement; ``groups`` are the pattern's letters in their order."""
    for letters in groups:
        if groups.count(letters) > 1:
            raise ValueError(f"has '{letters}' twice")
    missing = [letters for letters in _REQUIRED if letters not in groups]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    at = {letters: rf"\{number}" for number, letters in enumerate(groups, 1)}
    fraction = f".{at['S']}" if "S" in at else ""
    if fraction and "ss" not in at:
        raise ValueError("has a fraction without ss")
    day = f"{at['yyyy']}-{at['MM']}-{at['dd']}"
    return f"{day}T{at['HH']}:{at['mm']}:{at.get('ss', '00')}{fraction}{at.get('X', '')}"
