"""Names: any text is an account, has a page of its own, and is shown such that it looks like no other."""

from __future__ import annotations

import html
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from fraudlake import tables
from fraudlake_desk.documents import letters
from fraudlake_desk.web import names
from tests.desk import small_lake
from tests.desk.web.conftest import Open

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "José") for form in ("NFC", "NFD"))
SHOWN = {
    "DE/4711": "DE/4711", "DE~2F4711": "DE~2F4711", "~": "~", "/": "/",
    "//": "//", ".": ".", "..": "..", "...": "...", "../rules": "../rules",
    "7": "7", " 7": "␣7", "7 ": "7␣", " 7 ": "␣7␣", "a b": "a b", "a  b": "a ␣b", "\t7": "⟨U+0009⟩7",
    "%": "%", "50%": "50%", "50%25": "50%25", "a%2Fb": "a%2Fb", "%2E%2E": "%2E%2E", "a/b": "a/b",
    "a?b": "a?b", "a#b": "a#b", "a;b": "a;b", "a\\b": "a\\b", "a&b=c": "a&b=c", "a+b": "a+b", "'\"<b>": "'\"<b>",
    COMPOSED: "José", DECOMPOSED: "Jose⟨U+0301⟩", "שלום": "שלום", "\u202e7": "⟨U+202E⟩7",
    "a\u200bb": "a⟨U+200B⟩b", "ab": "ab", "\ufeffab": "⟨U+FEFF⟩ab", "a\nb": "a⟨U+000A⟩b", "a\u00a0b": "a⟨U+00A0⟩b",
    "\u3164": "⟨U+3164⟩", "💳": "💳",
    "L" * 70_000: "L" * 200 + "… (70,000 letters)", "L" * 69_999 + "M": "L" * 200 + "… (70,000 letters)",
    "ü" * 200: "ü" * 200, "ü" * 201: "ü" * 200 + "… (201 letters)",
}  # fmt: skip


@pytest.fixture
def root(root: Path) -> Path:
    """The lake of the pages with a payment of each name, its amount being the number of the name."""
    payment = {"timestamp": small_lake.NOON, "date": small_lake.DAY, "source": "names.parquet"}
    rows = [
        {**payment, "transaction_id": f"of {number}", "account_id": name, "amount": number + 0.25, "position": number}
        for number, name in enumerate(SHOWN)
    ]
    small_lake.write(root, small_lake.SILVER, rows)
    return root


def test_each_name_is_found_and_has_a_page_of_its_own(browse: Open) -> None:
    browser = browse()
    for number, (name, shown) in enumerate(SHOWN.items()):
        # The client of the tests sends no address of 70,000 letters, which the test in a browser does.
        is_short = len(name) < 10_000
        page = browser.get("/find", params={"name": name}) if is_short else browser.get(names.account(name))
        heading = re.search(r"<h1>Account <bdi>(.*?)</bdi></h1>", page.text, re.DOTALL)
        assert heading and html.unescape(heading[1]) == shown
        assert re.findall(r'<g class="mark" data-value="([^"]*)"', page.text) == [str(number + 0.25)]
        assert len(str(page.url)) < 8000


def test_the_pages_link_to_names_as_they_are(browse: Open, root: Path) -> None:
    paid = {"timestamp": small_lake.NOON, "date": small_lake.DAY, "source": "more.parquet", "terminal_id": "T0"}
    of_terminal = [
        {**paid, "transaction_id": f"at T0 {number}", "account_id": name, "amount": 1e6 - number, "position": number}
        for number, name in enumerate(SHOWN)
    ]
    small_lake.write(root, small_lake.SILVER, of_terminal)
    browser = browse()
    linked = re.findall(r'<a href="(/accounts/[^"]*)"><bdi>(.*?)</bdi>', browser.get("/items/alert2/shared").text)
    assert linked
    for address, shown in linked:
        assert f"<bdi>{shown}</bdi></h1>" in browser.get(html.unescape(address)).text


@pytest.mark.parametrize("name", SHOWN)
def test_an_address_survives_proxies_that_decode_it(name: str) -> None:
    address = names.account(name)
    assert urlsplit(f"https://desk.example{address}").path == address
    parts = address.removeprefix("/accounts/").split("/")
    decoded = [unquote(unquote(part)) for part in parts]
    assert not [part for part in decoded if part in ("", ".", "..", "%2e", "%2e%2e") or "/" in part]
    assert names.Text().convert(decoded[0]) == name[:200]


def test_names_that_differ_are_shown_as_such() -> None:
    shown = [letters.shown(name) for name in SHOWN if len(name) < 1000]
    assert len(shown) == len(set(shown))


def test_a_sentence_about_a_name_shows_its_letters(browse: Open, root: Path) -> None:
    hidden = "a\u200bb turned \u202e"
    alert = {**small_lake.alerts()[0], "alert_id": "of hidden", "explanation": hidden}
    small_lake.write(root, tables.SILVER_ALERTS, [alert])
    small_lake.write(root, tables.GOLD_CASES, [{**small_lake.case(alert), "case_id": "of hidden"}])
    small_lake.write(root, tables.GOLD_REVIEW_QUEUE, [
        {**small_lake.queue()[0], "item_id": "of hidden", "rank": 99, "reasons": hidden, "day": small_lake.DAY}
    ])  # fmt: skip
    browser = browse()
    for page in ("/", "/items/of hidden"):
        assert "a⟨U+200B⟩b turned ⟨U+202E⟩" in browser.get(page).text
        assert not {"\u200b", "\u202e"} & set(browser.get(page).text)


def test_samples_of_the_quarantine_show_their_letters(browse: Open, root: Path) -> None:
    hidden = {"accountId": " 7\u202e", "_source_file": "a\u200bb.parquet", "_source_row": 1}
    bad = {**hidden, "reasons": ["amount_is_known"], "quarantined_at": small_lake.NOON}
    small_lake.write(root, tables.SILVER_QUARANTINE, [bad])
    page = browse().get("/health").text
    assert "<bdi>␣7⟨U+202E⟩</bdi>" in page and "<bdi>a⟨U+200B⟩b.parquet</bdi> #1" in page
    assert not {"\u200b", "\u202e"} & set(page)


def test_what_was_copied_with_blanks_is_found(browse: Open) -> None:
    page = browse().get("/find", params={"name": "  DE/4711 "})
    assert "<h1>Account <bdi>DE/4711</bdi></h1>" in page.text


def test_a_name_that_nobody_has_is_said_in_a_line(browse: Open) -> None:
    browser = browse()
    answer = browser.get("/find", params={"name": "\u202enobody"})
    assert answer.status_code == 404 and "transaction '⟨U+202E⟩nobody'" in html.unescape(answer.text)
    assert browser.get("/find", params={"name": " "}).status_code == 404
    gone = browser.get(names.account("nobody" * 100))
    assert gone.status_code == 404 and "any more: it was forgotten" in gone.text
