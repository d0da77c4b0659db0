"""Cut: a long text becomes a short one on a page, with the whole of it one click away."""

from __future__ import annotations

from markupsafe import Markup, escape

from fraudlake.desk.letters import marked

CELL = 40
"""Letters of a text in a cell, which has one or two lines on a phone."""


def brief(text: object, most: int = CELL) -> str:
    """Return a text such that each letter is seen; of a longer one, as of a path, the beginning and the end.

    What it is in leads to the whole text, such as a link to an account's page.
    """
    given = str(text)
    if len(given) <= most:
        return marked(given)
    end = most // 2 - 1
    return f"{marked(given[: most - end - 1])}…{marked(given[-end:])}"


def cut(text: object, most: int = CELL) -> Markup:
    """Return a text, or if it is longer than so many letters a part of it that opens the whole one."""
    given = str(text)
    if len(given) <= most:
        return Markup(f"<bdi>{escape(marked(given))}</bdi>")  # noqa: S704 (escaped here)
    return _opening(brief(given, most), given)


def whole(text: str, most: int) -> Markup:
    """Return what opens a text of which a heading has so many letters; nothing if these are all."""
    return Markup() if len(text) <= most else _opening("Whole name", text)


def _opening(summary: str, text: str) -> Markup:
    shown = "\n".join(map(marked, text.splitlines()))
    return Markup('<details class="cut"><summary><bdi>{}</bdi></summary><bdi>{}</bdi></details>').format(summary, shown)
