"""Names: any text becomes a part of an address and back, and a text in which every letter is seen."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

LONGEST = 200
"""Letters of a name in an address and on a page. Of a longer one they have the beginning."""
_BLANKS = re.compile(r"^ +| +$|(?<= ) +")
_ESCAPE = re.compile("~([0-9A-F]{2})")
_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
"""Categories of Unicode without a shape of their own: controls, formats, separators."""
_FILLERS = "\u034f\u115f\u1160\u2800\u3164\uffa0" + "".join(map(chr, range(0xFE00, 0xFE10)))
"""Letters and marks that Unicode shows as nothing."""


class Text(Convertor[str]):
    """A part of an address that :func:`segment` has made."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the text of a part that the server has decoded."""
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)

    def to_string(self, value: str) -> str:
        """Return the part of a text."""
        return segment(value)


register_url_convertor("text", Text())


def segment(text: str) -> str:
    """Return a text as a part of an address, whose convertor is ``text``.

    Proxies and servers decode an address before they look for its parts, some of them twice, and browsers take ``.``
    and ``..`` for folders, also if they are encoded. So these letters have an escape of their own, such as ``~2F``.
    """
    letters = "~%/." if text in (".", "..") else "~%/"
    return quote("".join(f"~{ord(letter):02X}" if letter in letters else letter for letter in text), safe="")


def account(name: str) -> str:
    """Return the address of an account's page; that of a long name has its beginning and :func:`digest`."""
    beginning = f"/accounts/{segment(name[:LONGEST])}"
    return beginning if len(name) <= LONGEST else f"{beginning}/{digest(name)}"


def digest(name: str) -> str:
    """Return the SHA-256 of a name."""
    return hashlib.sha256(name.encode()).hexdigest()


def shown(name: str) -> str:
    """Return a name such that two different ones do not look alike: letters without a shape are shown by their numbers.

    So are marks of a name that is not composed (NFC). Blanks that a page would leave out are ``␣``.
    """
    beginning = seen(_BLANKS.sub(lambda match: "␣" * len(match[0]), name[:LONGEST]))
    return beginning if len(name) <= LONGEST else f"{beginning}… ({len(name):,} letters)"


def seen(text: str) -> str:
    """Return a text, such as a sentence with a name in it, in which letters without a shape are shown by their numbers.

    So are the marks of a text that is not composed (NFC).
    """
    if text.isascii() and text.isprintable():
        return text
    is_composed = unicodedata.is_normalized("NFC", text)
    return "".join(letter if _is_seen(letter, is_composed) else f"⟨U+{ord(letter):04X}⟩" for letter in text)


def _is_seen(letter: str, is_composed: bool) -> bool:
    if letter == " ":
        return True
    if letter in _FILLERS or unicodedata.category(letter) in _UNSEEN:
        return False
    return is_composed or not unicodedata.combining(letter)
