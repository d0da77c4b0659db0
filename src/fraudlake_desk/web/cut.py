"""Cut: shortens long texts on a page; a click shows the whole text."""

from __future__ import annotations

from markupsafe import Markup, escape

from fraudlake_desk.documents.letters import disambiguate

CELL = 40
"""Letters of a text in a cell: one or two lines on a phone."""


def brief(text: object, most: int = CELL) -> str:
    """Return a text with invisible letters shown; from a longer one, such as a path, the beginning and the end.

    Use it where something else leads to the whole text, such as a link to an account's page.
    """
    full = str(text)
    if len(full) <= most:
        return disambiguate(full)
    end = most // 2 - 1
    return f"{disambiguate(full[: most - end - 1])}…{disambiguate(full[-end:])}"


def cut(text: object, most: int = CELL) -> Markup:
    """Return a text; one of more than ``most`` letters is shortened, and opens on a click."""
    full = str(text)
    if len(full) <= most:
        return Markup(f"<bdi>{escape(disambiguate(full))}</bdi>")  # noqa: S704 (escaped here)
    return _opening(brief(full, most), full)


def whole(text: str, most: int) -> Markup:
    """Return an element that opens the whole text of a heading cut after ``most`` letters; empty if it is not cut."""
    return Markup() if len(text) <= most else _opening("Whole name", text)


def _opening(summary: str, text: str) -> Markup:
    shown = "\n".join(map(disambiguate, text.splitlines()))
    return Markup('<details class="cut"><summary><bdi>{}</bdi></summary><bdi>{}</bdi></details>').format(summary, shown)
