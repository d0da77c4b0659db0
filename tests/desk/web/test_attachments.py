"""Attached files: a form takes them without scripts, a link gives their bytes and nothing else."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from httpx2 import Response

from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log
from fraudlake_desk.documents import document, dossier
from fraudlake_desk.review import attachments, matters
from fraudlake_desk.web.role import Role
from tests.desk import small_lake
from tests.desk.page import Page, text_of
from tests.desk.web.conftest import Browser, Open

pytestmark = pytest.mark.slow

CASE, ATTACH = "/items/alert2", "/items/alert2/attach"
HOSTILE = "<img src=x onerror=alert(1)>'\u202egpj.exe"
CONTENT = b"<script>alert('file')</script>\r\n\x00\xff"


def upload(browser: Browser, name: str = "answer.pdf", content: bytes = CONTENT, **fields: str) -> Response:
    form = browser.form(f"{CASE}?day=2026-03-07", ATTACH) | fields
    return browser.post(ATTACH, data=form, files={"file": (name, content, "text/html")})


def link(page: str) -> str:
    return re.findall(r'href="(/items/alert2/files/\w+)"', page)[0]


def test_a_file_is_attached_and_given_back_byte_for_byte_as_a_download(browse: Open, store: LocalStore) -> None:
    browser = browse()
    page = upload(browser, note="from the bank").text
    assert "The file is attached." in page and "anna attached answer.pdf" in text_of(page)
    answer = browser.get(link(page))
    assert answer.content == CONTENT
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''answer.pdf"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    (event,) = event_log.read_events(store)
    assert event.file_hash == hashlib.sha256(CONTENT).hexdigest() and event.note == "from the bank"
    assert event.file_size == len(CONTENT) and event.day == small_lake.DAY


def test_a_hostile_name_is_shown_letter_by_letter_and_saved_so(browse: Open) -> None:
    browser = browse()
    page = upload(browser, HOSTILE).text
    assert "<img src=x" not in page and "\u202e" not in page and "⟨U+202E⟩gpj.exe" in page
    saved = browser.get(link(page)).headers["content-disposition"]
    assert saved.isascii() and "%E2%9F%A8U%2B202E%E2%9F%A9gpj.exe" in saved


def test_a_form_that_is_sent_again_attaches_nothing(browse: Open, store: LocalStore) -> None:
    browser = browse()
    form = browser.form(CASE, ATTACH)
    for _ in range(2):
        answer = browser.post(ATTACH, data=form, files={"file": ("a.txt", b"a")})
        assert answer.status_code == 200 and "The file is attached." in answer.text
    assert len(event_log.read_events(store)) == 1


def test_a_changed_file_is_refused_on_a_page(browse: Open, root: Path) -> None:
    browser = browse()
    page = upload(browser).text
    (file,) = (root / "attachments").iterdir()
    file.write_bytes(b"another one")
    answer = browser.get(link(page))
    assert answer.status_code == 409 and "was changed after anna attached it" in answer.text
    file.unlink()
    assert "any more: it was removed" in browser.get(link(page)).text


@pytest.mark.parametrize(
    ("name", "content", "status", "message"),
    [
        ("a.txt", b"", 409, "the file is empty"),
        ("a.txt", bytes(attachments.LARGEST + 1), 413, "larger than 10 MB"),
        ("a.txt", bytes(attachments.LARGEST + (1 << 20)), 413, "larger than 10 MB"),
        ("x" * 300, b"a", 409, "has 300 letters"),
    ],
)
def test_what_cannot_be_attached_is_refused_in_a_line(
    browse: Open, root: Path, store: LocalStore, name: str, content: bytes, status: int, message: str
) -> None:
    answer = upload(browse(), name, content)
    assert answer.status_code == status and message in answer.text
    assert not (root / "attachments").exists() and event_log.read_events(store) == []


def test_only_forms_of_analysts_and_of_this_desk_are_taken_and_only_here(browse: Open, store: LocalStore) -> None:
    browser = browse()
    assert upload(browser, form="0" * 64).status_code == 403
    assert upload(browser, event_id="short").status_code == 409
    form, file = browser.form(CASE, ATTACH), {"file": ("a.txt", bytes(1 << 20))}
    assert browser.post(f"{CASE}/note", data=form, files=file).status_code == 413
    assert browser.post(ATTACH, data=form).status_code == 409
    assert browser.post(ATTACH, data=form, files=[("file", ("a", b"a")), ("file", ("b", b"b"))]).status_code == 409
    reader = browse("rita", Role.READER)
    assert 'type="file"' not in reader.get(CASE).text
    assert reader.post(ATTACH, data=form, files=file).status_code == 403
    assert event_log.read_events(store) == []


def test_readers_download_and_a_file_is_found_by_its_own_item_only(browse: Open) -> None:
    address = link(upload(browse()).text)
    reader = browse("rita", Role.READER)
    assert reader.get(address).content == CONTENT
    assert reader.get(address.replace("alert2", "alert3")).status_code == 404
    assert reader.get(f"{CASE}/files/none").status_code == 404


def test_the_dossier_lists_files_with_their_hashes(browse: Open, store: LocalStore) -> None:
    upload(browse(), HOSTILE)
    made = document.render(dossier.dossier(store, "alert2"), small_lake.NOON)
    (event,) = event_log.read_events(store)
    ((number, _, by, file, size, hash_),) = Page(made).blocks["Attached files"].rows[1:]
    assert (number, by, size, hash_) == ("1", "anna", str(len(CONTENT)), event.file_hash)
    assert file == HOSTILE.replace("\u202e", "⟨U+202E⟩")


def test_a_file_of_a_case_that_was_merged_is_on_the_page_of_the_whole_one(browse: Open, store: LocalStore) -> None:
    browser = browse()
    form, address = browser.form(CASE, ATTACH), link(upload(browser).text)
    matters.merge(store, "alert2", "alert1", "anna", "the same device", "m" * 32)
    assert link(browser.get("/items/alert1").text) == address and browser.get(address).content == CONTENT
    answer = browser.post(ATTACH, data=form, files={"file": ("b.txt", b"b")})
    assert answer.status_code == 409 and "this is part of case alert1 now" in answer.text
