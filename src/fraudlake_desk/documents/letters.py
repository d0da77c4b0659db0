"""Letters: makes invisible characters of a text visible, so that look-alike names differ on pages and in files."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

LONGEST = 200
"""Letters of a name in an address and on a page; longer names are cut."""
_BLANKS = re.compile(r"^ +| +$|(?<= ) +")
_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
"""Unicode categories of invisible letters: controls, formats, separators."""
_FILLERS = "\u034f\u115f\u1160\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
"""Letters and marks that are rendered as nothing."""


def shown(name: str) -> str:
    """Return a name, :func:`disambiguate`; a longer one is cut and followed by its length."""
    beginning = disambiguate(name[:LONGEST])
    return beginning if len(name) <= LONGEST else f"{beginning}… ({len(name):,} letters)"


def disambiguate(text: str) -> str:
    """Return a text such that two different texts do not look alike: invisible letters become their code points.

    So do combining marks, if the text is not composed (NFC). Blanks that HTML would collapse become ``␣``.
    """
    return replace_invisible(blanks(text))


def blanks(text: str, mark: str = "␣") -> str:
    """Return a text with a mark for each blank that HTML would collapse."""
    if "  " not in text and text == text.strip(" "):  # as nearly all are
        return text
    return _BLANKS.sub(lambda match: mark * len(match[0]), text)


def _number(letter: str) -> str:
    return f"⟨U+{ord(letter):04X}⟩"


def replace_invisible(text: str, mark: Callable[[str], str] = _number) -> str:
    """Return a text, such as a sentence with a name, with each invisible letter replaced, by default by its code point.

    Combining marks are replaced, too, if the text is not composed (NFC).
    """
    if text.isascii() and text.isprintable():
        return text
    is_composed = unicodedata.is_normalized("NFC", text)
    return "".join(letter if _is_visible(letter, is_composed) else mark(letter) for letter in text)


def _is_visible(letter: str, is_composed: bool) -> bool:
    if letter == " ":
        return True
    if letter in _FILLERS or unicodedata.category(letter) in _UNSEEN:
        return False
    return is_composed or not unicodedata.combining(letter)
