"""Cut: a long text is short, and whole in what opens it."""

from __future__ import annotations

from html import unescape

from fraudlake_desk.web.cut import brief, cut, whole


def test_a_short_text_is_whole() -> None:
    assert (brief("a" * 40), cut("<b>"), whole("a" * 200, 200)) == ("a" * 40, "<bdi>&lt;b&gt;</bdi>", "")


def test_of_a_path_one_sees_the_beginning_and_the_end() -> None:
    path = f"landing/{'day=2026-03-07/' * 9}part-0.parquet"
    assert brief(path) == "landing/day=2026-03-…3-07/part-0.parquet"
    assert len(brief("x" * 10_000)) == len(brief("x" * 41)) == 40


def test_a_click_opens_the_whole_text_with_each_of_its_letters_seen() -> None:
    text = "<script>" * 20 + "\u202e\nend"
    shown = cut(text)
    assert shown.startswith('<details class="cut"><summary><bdi>') and "<script>" not in shown
    assert unescape(shown).endswith(f"<bdi>{'<script>' * 20}⟨U+202E⟩\nend</bdi></details>")
    assert unescape(whole("x" * 201, 200)).endswith(f"<bdi>{'x' * 201}</bdi></details>")
