"""Letters: texts that differ look different, on pages, in files and in charts."""

from __future__ import annotations

import html
import unicodedata

import pytest

from fraudlake_desk.documents import charts, document, letters
from fraudlake_desk.documents.document import Block, Document, Prose, Section
from tests.desk import conftest as made
from tests.desk.page import Page

HIDDEN = ("\u200b", "\u202e", "\u2066", "\u00ad", "\t", "\u00a0", "\u3164", "\ufe0f", "\ufeff")
"""Zero-width, right-to-left, control and filling letters."""


@pytest.mark.parametrize("letter", HIDDEN)
def test_a_letter_without_a_shape_is_its_number(letter: str) -> None:
    assert letters.disambiguate(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


def test_what_is_marked_is_not_marked_again() -> None:
    name = " a\u200b  b" + unicodedata.normalize("NFD", "é") + " "
    assert letters.disambiguate(letters.disambiguate(name)) == letters.disambiguate(name) == "␣a⟨U+200B⟩ ␣be⟨U+0301⟩␣"


def test_a_file_shows_each_letter_of_its_texts() -> None:
    name, shown = " 7\u202e", "␣7⟨U+202E⟩"
    block = Block(f"of {name}", f"note {name}", "", (f"head {name}",), [(name,), ([name, "b"],)], missing=f"not {name}")
    whole = Document(f"title {name}", {"account": name}, [Section(f"part {name}", [block])], f"lead {name}")
    page = html.unescape(document.render(whole, made.NOON))

    assert f"<td>{shown}</td>" in page and f"<td>{shown}, b</td>" in page and f">{shown}</dd>" in page
    for text in ("<h3>of", "note", "head", "not", "title", "part", "lead"):
        assert f"{text}  7⟨U+202E⟩" in page


def test_a_file_shows_the_lines_of_what_a_person_wrote() -> None:
    note = Prose("called the customer\r\nwho had it\u200b")
    whole = Document("t", {}, [Section("s", [Block("b", columns=("note",), rows=[(note,)])])])
    page = Page(document.render(whole, made.NOON))
    assert page.blocks["b"].column(0) == ["called the customer\nwho had it⟨U+200B⟩"]


def test_a_chart_shows_each_letter_of_its_names() -> None:
    drawn = charts.ranked(["a\u200bb"], [3.0], "of \u202e")
    assert "a⟨U+200B⟩b" in drawn and 'aria-label="of ⟨U+202E⟩"' in drawn
    assert not {"\u200b", "\u202e"} & set(drawn)
