"""A document as a reader gets it: its blocks with their tables and marks, parsed from the HTML."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link"}


def text_of(page: str) -> str:
    """The text of a page, without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


@dataclass
class Shown:
    """A block: the texts and the exact values of its table, the values of its marks, and its other text."""

    rows: list[list[str]] = field(default_factory=list)
    marks: list[float] = field(default_factory=list)
    text: str = ""

    def column(self, number: int) -> list[str]:
        """The cells of a column, without its head."""
        return [row[number] for row in self.rows[1:]]


class Page(HTMLParser):
    """Reads a document; ``blocks`` by their titles, and ``facts`` at its top."""

    def __init__(self, html: str) -> None:
        """Parse the HTML."""
        super().__init__()
        self.blocks: dict[str, Shown] = {}
        self.facts: dict[str, str] = {}
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self._block = self._head = Shown()
        self._cell: list[str] | None = None
        self._exact: str | None = None
        self._name = ""
        self.feed(html)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(given)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "article":
            self._block = self.blocks[given["data-block"] or ""] = Shown()
        if tag == "tr":
            self._block.rows.append([])
        if tag in ("td", "th", "dt", "dd"):
            self._cell, self._exact = [], given.get("data-value")
        elif "data-value" in given:
            self._block.marks.append(float(given["data-value"] or "nan"))

    def handle_endtag(self, tag: str) -> None:
        """End an element; they are nested properly."""
        assert self.open.pop() == tag
        if tag in ("td", "th", "dt", "dd") and self._cell is not None:
            text = "".join(self._cell)
            exact = text if self._exact is None else self._exact
            if tag == "dt":
                self._name = text
            elif tag == "dd":
                self.facts[self._name] = exact
            else:
                self._block.rows[-1].append(exact)
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._cell is not None:
            self._cell.append(data)
        self._block.text += data
