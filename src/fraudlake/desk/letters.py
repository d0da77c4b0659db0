"""Letters: any text becomes one in which every letter is seen, on pages and in files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

LONGEST = 200
"""Letters of a name in an address and on a page. Of a longer one they have the beginning."""
_BLANKS = re.compile(r"^ +| +$|(?<= ) +")
_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
"""Categories of Unicode without a shape of their own: controls, formats, separators."""
_FILLERS = "\u034f\u115f\u1160\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
"""Letters and marks that Unicode shows as nothing."""


def shown(name: str) -> str:
    """Return the beginning of a name as :func:`marked` does, with its length if that is not all."""
    beginning = marked(name[:LONGEST])
    return beginning if len(name) <= LONGEST else f"{beginning}… ({len(name):,} letters)"


def marked(text: str) -> str:
    """Return a text such that two different ones do not look alike: letters without a shape are shown by their numbers.

    So are marks of a text that is not composed (NFC). Blanks that a page would leave out are ``␣``.
    """
    return seen(blanks(text))


def blanks(text: str, mark: str = "␣") -> str:
    """Return a text in which each blank that a page would leave out is a mark."""
    if "  " not in text and text == text.strip(" "):  # as nearly all are
        return text
    return _BLANKS.sub(lambda match: mark * len(match[0]), text)


def _number(letter: str) -> str:
    return f"⟨U+{ord(letter):04X}⟩"


def seen(text: str, mark: Callable[[str], str] = _number) -> str:
    """Return a text, such as a sentence with a name in it, in which letters without a shape are marks: their numbers.

    So are the marks of a text that is not composed (NFC).
    """
    if text.isascii() and text.isprintable():
        return text
    is_composed = unicodedata.is_normalized("NFC", text)
    return "".join(letter if _is_seen(letter, is_composed) else mark(letter) for letter in text)


def _is_seen(letter: str, is_composed: bool) -> bool:
    if letter == " ":
        return True
    if letter in _FILLERS or unicodedata.category(letter) in _UNSEEN:
        return False
    return is_composed or not unicodedata.combining(letter)
