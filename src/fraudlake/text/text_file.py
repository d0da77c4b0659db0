"""Text files that a user names: decodes them as editors and programs on any system write them."""

from __future__ import annotations

import codecs
from pathlib import Path

_UTF_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
_MARK = "\ufeff"


def text(file: Path) -> str:
    """Return a file's text, in UTF-8 or, with a byte order mark, in UTF-16; with ``\\n`` for line ends.

    Raises:
        OSError: it cannot be read.
        ValueError: it is in another encoding.
    """
    content = file.read_bytes()
    try:
        return decoded(content).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line} is not UTF-8: save the file as UTF-8") from None


def decoded(content: bytes, encoding: str | None = None) -> str:
    """Decode bytes, without the byte order mark.

    Args:
        content: the bytes.
        encoding: their encoding; None: UTF-8, or UTF-16 if they begin with its byte order mark.

    Raises:
        UnicodeDecodeError: they are in another encoding.
        LookupError: Python does not know the encoding.
    """
    likely = "utf-16" if content.startswith(_UTF_16) else "utf-8"
    return content.decode(encoding or likely).removeprefix(_MARK)
