"""Document: renders sections of tables and charts as one HTML file, which needs no network and runs no script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake.errors import UsageError
from fraudlake.lake import json_file
from fraudlake.process.version import __version__
from fraudlake_desk.documents import letters

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_FEW = 7
"""The largest number of rows that a table shows unfolded."""


class Prose(str):
    """A text that a person wrote, whose line breaks are shown as such."""


@dataclass(frozen=True)
class Block:
    """A table with its chart, or the command that would fill it."""

    title: str
    note: str = ""
    """A sentence on how to read it."""
    chart: Markup | str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    source: str = ""
    """The tables that the figures come from."""
    missing: str = ""
    """Why there is no data, and what to run."""
    is_wide: bool = False
    """Whether it spans the whole width of the page."""

    @property
    def is_folded(self) -> bool:
        """Whether its table starts folded."""
        return bool(self.chart) and len(self.rows) > _FEW

    @property
    def numeric(self) -> list[bool]:
        """Whether each column has numbers."""
        return [
            any(_is_number(row[number]) for row in self.rows)
            and all(_is_number(row[number]) or row[number] is None for row in self.rows)
            for number in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    title: str
    blocks: Sequence[Block]
    note: str = ""


@dataclass(frozen=True)
class Document:
    """The content of a whole file."""

    title: str
    facts: Mapping[str, object]
    """The facts at its top, by name."""
    sections: Sequence[Section]
    lead: str = ""
    """A sentence on what it is about."""
    currency: str = "account currency"
    """The currency of its amounts."""
    has_cover: bool = False
    """Whether its top is a cover page, and its sections are numbered parts."""


def render(document: Document, made_at: datetime) -> str:
    """Return a document as HTML.

    Args:
        document: the document; its texts are escaped, and invisible letters are made visible.
        made_at: when it was made (UTC).
    """
    return _template().render(
        document=document, made_at=made_at, version=__version__, style=_file("charts.css") + _file("document.css")
    )


def save(file: Path, html: str) -> None:
    """Write a document to a file, atomically.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        json_file.write_text(file, html)
    except OSError as error:
        raise UsageError(f"--out {file}: {error.strerror}") from None


def text(value: object) -> str:
    """Return a value for people; :func:`render` also writes it, unrounded, as the ``data-value`` of its cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value))
    if isinstance(value, Prose):
        return "\n".join(map(letters.disambiguate, value.splitlines()))
    return letters.disambiguate(str(value))


def exact(value: object) -> str:
    """Return a value unrounded, as text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def finite(value: float | None) -> float | None:
    """Return a number if it can be drawn; None if it is infinite, NaN or missing."""
    return value if value is not None and math.isfinite(value) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _file(name: str) -> str:
    return resources.files("fraudlake_desk.documents").joinpath(name).read_text("utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"text": text, "exact": exact, "visible": letters.replace_invisible}
    environment.tests["a_time"] = lambda value: isinstance(value, date)
    return environment.from_string(_file("document.html"))
