"""The pages in Debian's browsers: a queue is worked through by keyboard, and axe looks for what shuts people out."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import axe_playwright_python
import httpx2
import pytest
from playwright.sync_api import Browser, Error, Page, Route, expect

from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log
from fraudlake.settings import Settings
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk import rules
from tests.desk import small_lake

AXE = next(Path(axe_playwright_python.__file__).parent.rglob("axe.min.js"))
PAGES = (
    *("/", "/?state=open&sort=-amount", "/?state=held", "/items/alert2?day=2026-03-07", "/items/drawn8"),
    *(
        "/rules",
        "/rules/small_then_large",
        "/rules/small_then_large/backtest?large_above=2000",
        "/approvals",
        "/health",
    ),
)

LONG = "x" * 10_000
PAYMENTS = "SELECT transaction_id, source, terminal_id FROM silver_transactions WHERE account_id = :key"

pytestmark = pytest.mark.long


@pytest.fixture
def window(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open a window of its own cookies; the test fails if a page logs an error, other than a ``forbidden`` request."""
    errors: list[str] = []
    contexts = []

    def open_(address: str, forbidden: bool = False, **options: Any) -> Page:
        # Browsers also log a refusal (409), a missing name (404) and a desk that is gone, which are a part of tests.
        expected = "40[49]|ERR_CONNECTION" + "|403" * forbidden

        def log(error: str) -> None:
            if not re.search(expected, error):
                errors.append(error)

        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: log(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: log(str(error)))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


def open_parts(page: Page) -> None:
    """Open what a page reads when one opens it, and wait for all parts."""
    for folded in page.locator("details:has(> [data-load])").all():
        folded.locator("summary").first.click()
    page.wait_for_load_state("networkidle")


def press(page: Page, key: str) -> None:
    """Press a key when the page has loaded: a key before its script runs is no key of the desk."""
    page.wait_for_load_state()
    page.keyboard.press(key)


def verdicts(root: Path) -> list[tuple[str, str, str]]:
    table = SILVER_REVIEW_EVENTS
    rows = LocalStore(Settings(lake=root)).query(f"SELECT * FROM {table.name} ORDER BY number", table).to_pylist()
    return [(row["item_id"], row["verdict"], row["note"]) for row in rows if row["kind"] in ("verdict", "corrected")]


def test_a_queue_is_worked_through_by_keyboard(desk: Any, window: Any, root: Path) -> None:
    page = window(desk().address)
    queue, keys = [row["item_id"] for row in small_lake.queue()], "fgu"
    for number in range(len(queue)):
        press(page, "n")
        expect(page.locator(".decision")).to_contain_text("Yours until")
        if number == 0:
            press(page, "o")
            page.keyboard.type("called the customer: f g u n")
            press(page, "Escape")
        press(page, keys[number % 3])
        expect(page.locator("#notices")).to_contain_text("Recorded at")
    press(page, "n")
    expect(page.locator("#notices")).to_contain_text("nothing is left to take: 9 of 9 are decided")
    press(page, "q")
    expect(page.locator("h1")).to_have_text("Queue of 7 Mar 2026")
    expect(page.locator(".head")).to_contain_text("9 of 9 decided")
    names = ("fraud", "genuine", "unsure")
    notes = ["called the customer: f g u n"] + [None] * 8
    assert verdicts(root) == [(item, names[at % 3], notes[at]) for at, item in enumerate(queue)]


def test_a_wrong_key_is_corrected_and_rows_are_chosen_by_keys(desk: Any, window: Any, root: Path) -> None:
    page = window(desk().address)
    for key in "jjjk":
        press(page, key)
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text("Account A6")
    press(page, "t")
    expect(page.locator("#notices")).to_contain_text("It is yours.")
    press(page, "r")
    expect(page.locator("#notices")).to_contain_text("You gave it back.")
    press(page, "f")
    expect(page.locator("#notices")).to_contain_text("fraud. The next item")
    press(page, "g")
    expect(page.locator("#notices")).to_contain_text("genuine. The next item")
    press(page, "?")
    expect(page.locator("dialog")).to_be_visible()
    press(page, "f")
    press(page, "Escape")
    assert verdicts(root) == [("alert6", "fraud", None), ("alert6", "genuine", None)]


def test_a_note_is_a_draft_until_it_is_sent_and_a_verdict_is_undone(desk: Any, window: Any, root: Path) -> None:
    page = window(desk().address)
    press(page, "n")
    expect(page.locator(".decision")).to_contain_text("Yours until")
    press(page, "o")
    page.keyboard.type("called, no answer")
    press(page, "Escape")
    address = page.url
    press(page, "n")
    expect(page.locator("h1")).to_have_text("Account A6")
    page.goto(address)
    expect(page.locator("#note")).to_have_value("called, no answer")
    page.locator("#reason").fill("x")
    press(page, "Enter")
    assert verdicts(root) == []
    press(page, "Escape")
    press(page, "1")
    press(page, "f")
    expect(page.locator("#notices")).to_contain_text("mark the payments that are fraud")
    press(page, "1")
    press(page, "f")
    expect(page.locator("#notices")).to_contain_text("Recorded at")
    expect(page.locator("#note")).to_have_value("")
    page.click("text=Undo")
    expect(page.locator("#notices")).to_contain_text("The verdict is withdrawn")
    assert verdicts(root) == [("alert9", "fraud", "called, no answer")]


def test_keys_save_a_note_and_find_what_has_a_name(desk: Any, window: Any, root: Path) -> None:
    page = window(desk().address)
    press(page, "/")
    page.keyboard.type("A2")
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text("Account A2")
    press(page, "q")
    expect(page.locator("h1")).to_have_text("Queue of 7 Mar 2026")
    press(page, "n")
    expect(page.locator(".decision")).to_contain_text("Yours until")
    press(page, "o")
    page.keyboard.type("no answer yet")
    press(page, "Escape")
    press(page, "s")
    expect(page.locator("#notices")).to_contain_text("The note is saved.")
    kinds = [(event.kind, event.note) for event in event_log.read_events(LocalStore(Settings(lake=root)))]
    assert kinds == [("taken", None), ("noted", "no answer yet")]


def test_keys_work_with_alt_or_not_at_all_if_one_wants(desk: Any, window: Any) -> None:
    page = window(desk().address)
    for mode, key, is_taken in (("off", "n", False), ("alt", "n", False), ("alt", "Alt+n", True)):
        page.click("text=Keys")
        page.select_option("#key-mode", mode)
        press(page, "Escape")
        press(page, key)
        expect(page.locator(".decision" if is_taken else "h1")).to_contain_text("Yours" if is_taken else "Queue of")


def test_keys_go_through_the_filtered_queue_and_back(desk: Any, window: Any) -> None:
    page = window(desk().address)
    page.click("summary")
    page.select_option("#state", "open")
    page.fill("#amount_to", "1000")
    with page.expect_navigation():
        page.click("text=Show")
    with page.expect_navigation():
        page.click("th >> text=At risk")
    for account in ("A4", "A3"):
        press(page, "n")
        expect(page.locator("h1")).to_have_text(f"Account {account}")
        press(page, "g")
        expect(page.locator("#notices")).to_contain_text("Recorded at")
    press(page, "q")
    expect(page.locator("tbody tr")).to_have_count(3)
    press(page, "j")
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text("Account A2")
    page.go_back()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.fill("#find", "nothing has this")
    expect(page.locator("#none")).to_be_visible()
    page.click("text=Remove the filter")
    page.fill("#find", "decided")
    expect(page.locator("tbody tr:visible")).to_have_count(2)


def test_two_analysts_race_for_a_case_and_one_is_told(desk: Any, window: Any) -> None:
    desks = [desk("anna"), desk("bert")]
    pages = [window(one.address) for one in desks]
    for one, page in zip(desks, pages, strict=True):
        page.goto(f"{one.origin}/items/alert2?day=2026-03-07")
    for page in pages:
        page.evaluate("document.querySelector('[data-key=t]').click()")
    for page in pages:
        page.wait_for_selector("#notices .notice")
    told = sorted(page.locator("#notices").inner_text() for page in pages)
    assert told[0] == "It is yours."
    assert re.match(r"(anna|bert) holds alert2 until", told[1])


def test_a_verdict_survives_a_desk_that_is_killed(desk: Any, window: Any, root: Path) -> None:
    first = desk()
    page = window(first.address, forbidden=True)
    page.goto(f"{first.origin}/items/alert2?day=2026-03-07")
    page.fill("#note", "the customer did not pay this")
    first.end()
    press(page, "Escape")
    page.click("[data-key=f]")
    expect(page.locator("#notices")).to_contain_text("The desk did not answer")
    second = desk(port=first.port)
    page.click("text=Send again")  # too early: its new address is not open yet
    expect(page.locator("#notices")).to_contain_text("its token lets you in")
    page.goto(second.address)
    expect(page.locator("#notices")).to_contain_text("This was not answered earlier: the verdict on A2.")
    page.click("text=Send again")
    expect(page.locator("#notices")).to_contain_text("Recorded at")
    page.goto(second.origin)
    expect(page.locator("#notices")).to_be_empty()
    assert verdicts(root) == [("alert2", "fraud", "the customer did not pay this")]


def test_a_limit_is_moved_by_a_slider_and_becomes_a_draft(desk: Any, window: Any, root: Path) -> None:
    one = desk()
    page = window(one.address)
    page.goto(f"{one.origin}/rules/small_then_large")
    expect(page.locator("#backtest")).to_contain_text("As it is")
    page.locator("input[type=range][data-limit=large_above]").fill("900")
    larger = sum(row["amount"] > 900 for row in small_lake.transactions())
    expect(page.locator("#backtest tr", has_text="Alerts").first).to_contain_text(f"10\t{larger}", use_inner_text=True)
    page.click("text=Save as a draft")
    expect(page.locator("#notices")).to_contain_text("Version 2 is a draft now.")
    draft = rules.read(LocalStore(Settings(lake=root)))[0].version_of("small_then_large", 2)
    assert draft.status == "draft" and draft.rule.limits["large_above"] == 900


def test_an_older_backtest_never_replaces_a_newer_one(desk: Any, window: Any) -> None:
    one = desk()
    page = window(one.address)

    def answer(route: Route) -> None:
        """Answer the first position of the slider after the second one."""
        above = re.findall(r"large_above=(\d+)", route.request.url)[0]
        asked.append(above)
        held.append(route) if above == "700" else route.fulfill(body=f"answer {above}")

    asked: list[str] = []
    held: list[Route] = []
    page.goto(f"{one.origin}/rules/small_then_large")
    expect(page.locator("#backtest")).to_contain_text("As it is")
    page.route("**/backtest?*", answer)
    for above in ("700", "900"):
        page.locator("input[type=range][data-limit=large_above]").fill(above)
        expect(page.locator("#backtest")).to_have_attribute("aria-busy", "true")
        page.wait_for_timeout(400)
    expect(page.locator("#backtest")).to_have_text("answer 900")
    with suppress(Error):  # the page has cancelled it
        held[0].fulfill(body="answer 700")
    page.wait_for_timeout(300)
    expect(page.locator("#backtest")).to_have_text("answer 900")
    assert asked == ["700", "900"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_shuts_people_out_and_every_page_fits(desk: Any, window: Any, scheme: str, width: int) -> None:
    one = desk()
    page = window(one.address, color_scheme=scheme, viewport={"width": width, "height": 800})
    for path in PAGES:
        page.goto(one.origin + path)
        open_parts(page)
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run()")["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
        assert (path, serious) == (path, [])
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def long_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a lake whose last account, terminals, files, rules, sentences, analysts and reasons have 10 kB each.

    Its large amounts are millions of times as large.
    """
    monkeypatch.setattr(small_lake, "ACCOUNTS", [*small_lake.ACCOUNTS[:9], LONG])
    path = f"landing/{'day=2026-03-07/' * 600}part-0.parquet"
    paid = [{**row, "terminal_id": row["terminal_id"] + LONG, "source": path} for row in small_lake.transactions()]
    paid = [row | {"amount": row["amount"] * 1e7} if row["amount"] > 500 else row for row in paid]
    monkeypatch.setattr(small_lake, "transactions", lambda: paid)
    shutil.rmtree(root)
    small_lake.make(root)
    raised = {**small_lake.alerts()[-1], "alert_id": "long", "rule": LONG, "measures": [(LONG, LONG)]}
    small_lake.write(root, small_lake.tables.SILVER_ALERTS, [raised])
    event = {"number": 1, "event_id": "e", "item_id": "alert9", "kind": "verdict", "verdict": "fraud", "analyst": LONG}
    event |= {"reason": LONG, "note": LONG, "at": small_lake.NOON, "date": small_lake.DAY, "account_id": LONG}
    event |= {"entity": "account", "entity_key": LONG, "transaction_ids": ["9-4"], "fraud_ids": ["9-4"]}
    small_lake.write(root, SILVER_REVIEW_EVENTS, [event])
    (root.parent / "fraudlake.toml").write_text(
        f"[[panels]]\ntitle = 'Payments'\nquery = '{PAYMENTS}'\n[[panels]]\ntitle = 'Gone'\ntable = 'gone'\nkey = 'a'\n"
    )


CUT = """() => [...document.querySelectorAll("main *, header *")].filter((one) => {
  const style = getComputedStyle(one);
  if (one.closest(".visually-hidden, svg, textarea, dialog, thead, datalist") || !one.checkVisibility()) return false;
  const hides = ["hidden", "clip"].includes(style.overflowX);
  return hides && one.scrollWidth > one.clientWidth + 1 && !["INPUT", "SELECT"].includes(one.tagName);
}).map((one) => one.outerHTML.slice(0, 200))"""
"""Elements with text that nobody can reach, since neither a scroll bar nor a click leads to it."""


TALL = """() => [...document.querySelectorAll("td:not(.links-of td)")]
.filter((one) => one.offsetHeight > 104).map((one) => one.innerText)"""
"""Texts of cells with more than five lines, as a cut sentence may have."""


@pytest.mark.parametrize("width", [1280, 390])
def test_names_of_10_kb_hide_nothing_and_are_whole_after_a_click(
    desk: Any, window: Any, root: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    long_names(root, monkeypatch)
    monkeypatch.chdir(root.parent)
    one = desk()
    page = window(one.address, viewport={"width": width, "height": 800})
    page.goto(f"{one.origin}/find?name=alert9")
    with page.expect_navigation():
        page.click("text=Queue >> nth=0")
    account = f"/accounts/{LONG[:200]}/{hashlib.sha256(LONG.encode()).hexdigest()}"
    for path in (*PAGES, "/items/alert9", account, "/people?from=2026-03-01&to=2026-03-31", f"/find?name=T0{LONG}"):
        page.goto(one.origin + path)
        open_parts(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert (path, page.evaluate(CUT)) == (path, [])
        assert (path, page.evaluate(TALL)) == (path, [])
        pictures = os.environ.get("PICTURES")
        if pictures:
            page.screenshot(path=f"{pictures}/{width}-{re.sub('[^a-z0-9]', '-', path[:30])}.png", full_page=True)
    page.goto(f"{one.origin}/items/alert9")
    heading = page.locator(".head details")
    expect(heading.locator("> bdi")).to_be_hidden()
    heading.locator("summary").click()
    expect(heading.locator("> bdi")).to_have_text(LONG)
    for place in (".facts-of", ".evidence >> nth=0", "aside .plain"):
        cut = page.locator(place).locator("details.cut").first
        cut.locator("summary").click()
        expect(cut.locator("> bdi")).to_contain_text("x" * 9_000)
    source = page.locator("section:has(h2:text('All transactions')) tbody tr").first.locator("details.cut").last
    expect(source.locator("summary")).to_contain_text("part-0.parquet")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("DE/4711", "DE/4711"),
        ("..", ".."),
        (" 7 ", "␣7␣"),
        ("Jose\u0301", "Jose⟨U+0301⟩"),
        ("L" * 70_000, "L" * 200 + "… (70,000 letters)"),
    ],
    ids=["slash", "dots", "blanks", "decomposed", "long"],
)
def test_an_account_is_found_by_any_name(desk: Any, window: Any, root: Path, name: str, shown: str) -> None:
    paid = {"transaction_id": "t", "account_id": name, "timestamp": small_lake.NOON, "date": small_lake.DAY}
    small_lake.write(root, small_lake.SILVER, [{**paid, "amount": 1.0, "source": "s", "position": 0}])
    one = desk()
    page = window(one.address)
    page.fill("#find", name)
    page.press("#find", "Enter")
    expect(page.locator("h1")).to_have_text(f"Account {shown}")
    page.click("text=30 days before")
    expect(page.locator("h1")).to_have_text(f"Account {shown}")


def test_what_is_done_with_several_items_has_buttons_next_to_each_other(desk: Any, window: Any) -> None:
    page = window(desk().address)
    page.click("summary:has-text('With several items')")
    boxes = [page.locator(f"#several button.{name}").bounding_box() for name in ("genuine", "unsure", "fraud")]
    assert len({box["y"] for box in boxes}) == 1


def test_several_items_are_chosen_by_boxes_and_taken_at_once(desk: Any, window: Any, root: Path) -> None:
    page = window(desk().address)
    page.click("summary:has-text('With several items')")
    page.fill("#find", "A1 A1")  # no other row has the text
    page.check(".all input")
    expect(page.locator("output")).to_have_text("1 chosen")
    page.fill("#find", "")
    page.locator("#find").blur()
    for key in ("j", "j", "x"):
        press(page, key)
    page.click("button:has-text('Take')")
    expect(page.locator("h1")).to_have_text("2 of 2 items done")
    expect(page.locator("td:has-text('yours until')")).to_have_count(2)
    page.click("main >> text=Queue")
    expect(page.locator(".chip.mine")).to_have_count(2)
    assert len(event_log.read_events(LocalStore(Settings(lake=root)))) == 2


def test_each_verdict_exists_once_or_not_at_all_if_the_desk_is_killed(desk: Any, root: Path) -> None:
    for number in range(20):
        one = desk()
        with httpx2.Client(base_url=one.origin, follow_redirects=True) as browser:
            browser.get(one.address)
            item = f"alert{number % 7}"
            page = browser.get(f"/items/{item}").text
            form = page[page.index(f'action="/items/{item}/verdict"') :]
            sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form[: form.index("</form>")]))
            sent |= {"fraud": re.findall(r'name="fraud" value="([^"]*)" checked', form[: form.index("</form>")])}
            sent |= {"verdict": ("fraud", "genuine")[number % 2], "note": f"verdict {number}"}
            killer = threading.Timer(0.015 * number, one.process.kill)
            killer.start()
            with suppress(httpx2.TransportError):
                browser.post(f"/items/{item}/verdict", data=sent)
            killer.join()
        one.process.wait()
        written = [note for _, _, note in verdicts(root)].count(f"verdict {number}")
        again = desk()
        with httpx2.Client(base_url=again.origin, follow_redirects=True) as browser:
            browser.get(again.address)
            token = re.findall('name="form-token" content="([^"]*)"', browser.get("/").text)[0]
            answer = browser.post(f"/items/{item}/verdict", data={**sent, "form": token})
        again.end()
        assert written in (0, 1) and answer.status_code == 200 and "Recorded at" in answer.text
        assert [note for _, _, note in verdicts(root)].count(f"verdict {number}") == 1
