"""Names: encodes any text as a segment of an address, and decodes it."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor

from fraudlake_desk.documents.letters import LONGEST

_ESCAPE = re.compile("~([0-9A-F]{2})")
_PLAIN = re.compile("[A-Za-z0-9_-]+")


class Text(Convertor[str]):
    """A segment of an address, encoded by :func:`segment`."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the text of a segment, whose percent escapes the server has already decoded."""
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)

    def to_string(self, value: str) -> str:
        """Return a text as a segment."""
        return segment(value)


register_url_convertor("text", Text())


def segment(text: str) -> str:
    """Return a text as a segment of an address, for routes with the convertor ``text``.

    Proxies and servers decode an address before they split it, some of them twice, and browsers resolve ``.`` and
    ``..`` even if they are encoded. So these letters get an escape of their own, such as ``~2F``.
    """
    if _PLAIN.fullmatch(text):
        return text
    letters = "~%/." if text in (".", "..") else "~%/"
    return quote("".join(f"~{ord(letter):02X}" if letter in letters else letter for letter in text), safe="")


def account(name: str) -> str:
    """Return the address of an account's page; for a long name, its beginning and its :func:`sha256`."""
    beginning = f"/accounts/{segment(name[:LONGEST])}"
    return beginning if len(name) <= LONGEST else f"{beginning}/{sha256(name)}"


def sha256(name: str) -> str:
    """Return the SHA-256 of a name."""
    return hashlib.sha256(name.encode()).hexdigest()
