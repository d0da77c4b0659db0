"""Decisions: what the forms write, once each, and what analysts are told."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake.lake import open_lake
from fraudlake.lake.local_store import LocalStore
from fraudlake.model import training
from fraudlake.model.history import from_micros
from fraudlake.review import items
from fraudlake.settings import Settings
from fraudlake.tables import SILVER_REVIEW_EVENTS, SILVER_VERDICTS
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Browser, Open

pytestmark = pytest.mark.slow

CASE = "/items/alert2"
DAY = f"{CASE}?day=2026-03-07"
VERDICT, TAKE, RELEASE = (f"{CASE}/{form}" for form in ("verdict", "take", "release"))


def events(store: LocalStore) -> list[dict[str, Any]]:
    table = SILVER_REVIEW_EVENTS
    return [*store.query(f"SELECT * FROM {table.name} ORDER BY number", table).to_pylist()]


def kinds(store: LocalStore) -> list[tuple[str, str | None, str]]:
    return [(event["kind"], event["verdict"], event["analyst"]) for event in events(store)]


def test_a_case_is_taken_decided_on_and_corrected(browse: Open, store: LocalStore) -> None:
    browser = browse()
    assert "Yours until" in text_of(browser.submit(CASE, TAKE))
    page = browser.submit(DAY, VERDICT, verdict="fraud", reason="card testing", note=f"{small_lake.SENTENCE} é")
    assert "fraud. The next item: n." in text_of(page) and "<script>" not in page
    page = browser.submit(CASE, VERDICT, verdict="genuine")
    assert "anna corrected: genuine" in text_of(page)
    assert kinds(store) == [("taken", None, "anna"), ("verdict", "fraud", "anna"), ("corrected", "genuine", "anna")]
    followed = store.query(f"SELECT * FROM {SILVER_VERDICTS.name} ORDER BY decided_at", SILVER_VERDICTS).to_pylist()
    assert [(row["transaction_id"], row["verdict"], row["analyst"]) for row in followed] == [
        ("2-4", True, "anna"),
        ("2-4", False, "anna"),
    ]
    decided = events(store)[1]
    assert decided["transaction_ids"] == ["2-4"] and decided["note"] == f"{small_lake.SENTENCE} é"
    assert decided["reason"] == "card testing" and decided["day"] == small_lake.DAY


def learned(root: Path) -> dict[str, bool]:
    """The labels that a training would learn by verdict now, by transaction: times tell those of the lake apart."""
    by_time = {row["timestamp"]: row["transaction_id"] for row in small_lake.transactions()}
    rows = training.history_of(open_lake(Settings(lake=root), must_exist=True)).labelled("verdicts")
    names = [by_time[from_micros(int(time)).replace(tzinfo=UTC)] for time in rows.time]
    assert len(names) == len({*names})
    return dict(zip(names, (rows.fraud == 1).tolist(), strict=True))


def test_a_verdict_is_a_label_of_the_next_training_and_a_correction_another(browse: Open, root: Path) -> None:
    browser, drawn = browse(), "/items/drawn8"
    assert learned(root) == {}
    browser.submit(CASE, VERDICT, verdict="fraud")
    assert learned(root) == {"2-4": True}
    browser.submit(f"{drawn}?day=2026-03-07", f"{drawn}/verdict", verdict="genuine")
    browser.submit("/items/alert3", "/items/alert3/verdict", verdict="unsure")
    assert learned(root) == {"2-4": True, "8-3": False, "8-4": False}
    browser.submit(CASE, VERDICT, verdict="genuine")
    assert learned(root) == {"2-4": False, "8-3": False, "8-4": False}
    browser.submit(CASE, VERDICT, verdict="unsure")
    assert learned(root) == {"8-3": False, "8-4": False}


def test_only_the_payments_that_are_marked_are_fraud(browse: Open, store: LocalStore, root: Path) -> None:
    browser, drawn = browse(), "/items/drawn8"
    answer = browser.post(f"{drawn}/verdict", data={**browser.form(drawn, f"{drawn}/verdict"), "verdict": "fraud"})
    assert answer.status_code == 409 and "mark the payments that are fraud" in answer.text
    browser.submit(drawn, f"{drawn}/verdict", verdict="fraud", fraud=["8-4"])
    assert learned(root) == {"8-3": False, "8-4": True}
    # A payment of another day may be marked, too; what is missed is estimated from the day's alone.
    browser.submit(drawn, f"{drawn}/verdict", verdict="fraud", fraud=["8-4", "8-1"])
    assert learned(root) == {"8-1": True, "8-3": False, "8-4": True}
    assert [event["fraud_amount"] for event in events(store)] == [1_400.0, 1_400.0]
    assert 'value="8-1" checked' in browser.get(drawn).text
    browser.submit(drawn, f"{drawn}/verdict", verdict="fraud", fraud=["8-3"])
    assert learned(root) == {"8-1": False, "8-3": True, "8-4": False}
    answer = browser.post(
        f"{drawn}/verdict", data={**browser.form(drawn, f"{drawn}/verdict"), "verdict": "fraud", "fraud": ["8-3", "no"]}
    )
    assert answer.status_code == 409 and "there is no payment no from 2025-12-07" in answer.text


def test_a_verdict_is_withdrawn_with_its_labels(browse: Open, store: LocalStore, root: Path) -> None:
    browser, action = browse(), f"{CASE}/withdraw"
    browser.submit(CASE, VERDICT, verdict="fraud")
    assert "it is open again" in text_of(browser.submit(CASE, action))
    assert learned(root) == {}
    assert "anna withdrew the verdict" in text_of(browser.get(CASE).text)
    assert f'action="{action}"' not in browser.get(CASE).text
    browser.submit(CASE, VERDICT, verdict="genuine")
    assert learned(root) == {"2-4": False}
    assert [kind for kind, _, _ in kinds(store)] == ["verdict", "withdrawn", "verdict"]


def test_a_drawn_account_that_one_analyst_called_fraud_wants_a_second_look(browse: Open) -> None:
    anna, bert, drawn = browse(), browse("bert"), "/items/drawn8"
    chip = '<span class="chip">second look</span>'
    anna.submit(drawn, f"{drawn}/verdict", verdict="fraud", fraud=["8-4"])
    assert chip in anna.get("/").text
    anna.submit(drawn, f"{drawn}/verdict", verdict="fraud")  # again by oneself is none
    assert chip in anna.get("/").text
    bert.submit(drawn, f"{drawn}/verdict", verdict="fraud")
    assert chip not in anna.get("/").text


def test_a_case_is_given_back(browse: Open, store: LocalStore) -> None:
    browser = browse()
    browser.submit(CASE, TAKE)
    assert "You gave it back." in browser.submit(CASE, RELEASE)
    assert [kind for kind, _, _ in kinds(store)] == ["taken", "released"]


def test_a_form_that_is_sent_again_writes_nothing(browse: Open, store: LocalStore) -> None:
    browser = browse()
    fields = {**browser.form(CASE, VERDICT), "verdict": "fraud"}
    first, second = (browser.post(VERDICT, data=fields) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert "Recorded at" in second.text
    assert kinds(store) == [("verdict", "fraud", "anna")]


def test_another_verdict_of_the_same_form_is_no_correction(browse: Open, store: LocalStore) -> None:
    browser = browse()
    fields = browser.form(CASE, VERDICT)
    browser.post(VERDICT, data={**fields, "verdict": "fraud"})
    answer = browser.post(VERDICT, data={**fields, "verdict": "genuine"})
    assert answer.status_code == 409 and "this page has recorded fraud already" in answer.text
    assert kinds(store) == [("verdict", "fraud", "anna")]


def test_two_analysts_never_hold_a_case(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna"), browse("bert")
    forms = [(browser, browser.form(CASE, TAKE)) for browser in (anna, bert)]
    answers: list[tuple[int, str]] = []

    def take(browser: Browser, fields: dict[str, str]) -> None:
        answer = browser.post(TAKE, data=fields)
        answers.append((answer.status_code, text_of(answer.text)))

    threads = [threading.Thread(target=take, args=form) for form in forms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in answers) == [200, 409]
    (winner,) = {event["analyst"] for event in events(store)}
    told = next(text for status, text in answers if status == 409)
    assert f"{winner} holds alert2 until" in told
    loser = anna if winner == "bert" else bert
    assert f"{winner} holds this until" in text_of(loser.get(CASE).text)


def test_a_verdict_on_what_another_analyst_holds_is_refused(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna"), browse("bert")
    fields = {**bert.form(CASE, VERDICT), "verdict": "fraud", "note": "long"}
    anna.submit(CASE, TAKE)
    answer = bert.post(VERDICT, data=fields, headers={"accept": "application/json"})
    assert answer.status_code == 409 and "anna holds alert2 until" in answer.json()["error"]
    assert kinds(store) == [("taken", None, "anna")]


def test_a_lock_that_is_over_is_said_and_the_case_is_free(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna", review_lock=timedelta(microseconds=1)), browse("bert")
    anna.submit(CASE, TAKE)
    assert "anna had taken it until" in text_of(bert.get(CASE).text)
    bert.submit(CASE, TAKE)
    assert kinds(store) == [("taken", None, "anna"), ("taken", None, "bert")]


def test_an_analyst_decides_late_if_nobody_else_has_taken_it(browse: Open, store: LocalStore) -> None:
    anna = browse("anna", review_lock=timedelta(microseconds=1))
    fields = {**anna.form(CASE, VERDICT), "verdict": "unsure"}
    anna.submit(CASE, TAKE)
    assert anna.post(VERDICT, data=fields).status_code == 200
    assert kinds(store)[-1] == ("verdict", "unsure", "anna")


@pytest.mark.parametrize("fields", [{"verdict": "maybe"}, {}, {"verdict": "fraud", "event_id": "x"}])
def test_a_verdict_that_is_none_writes_nothing(browse: Open, store: LocalStore, fields: dict[str, str]) -> None:
    browser = browse()
    assert browser.post(VERDICT, data={**browser.form(CASE, VERDICT), **fields}).status_code == 409
    assert events(store) == []


def test_a_verdict_on_what_is_gone_is_refused(browse: Open, store: LocalStore, root: Path) -> None:
    browser = browse()
    fields = {**browser.form(CASE, VERDICT), "verdict": "fraud"}
    from deltalake import DeltaTable

    for table in ("gold_cases", "gold_review_queue"):
        DeltaTable(root / "tables" / table).delete("case_id = 'alert2'")
    answer = browser.post(VERDICT, data=fields)
    assert answer.status_code == 404 and "forgotten or replaced" in answer.text
    assert events(store) == []


def test_a_note_beyond_what_an_event_takes_is_refused(browse: Open, store: LocalStore) -> None:
    browser = browse()
    fields = {**browser.form(CASE, VERDICT), "verdict": "fraud", "note": "x" * 30_000}
    answer = browser.post(VERDICT, data=fields)
    assert answer.status_code == 409 and "the note has 30,000 characters" in answer.text
    assert events(store) == []


def test_the_next_item_is_the_most_valuable_that_is_free(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna"), browse("bert")
    assert "Account <img" in text_of(anna.submit("/", "/next"))
    assert "Account A6" in text_of(bert.submit("/", "/next"))
    assert "Account A5" in text_of(anna.submit("/items/alert9?day=2026-03-07", "/next"))
    assert kinds(store) == [(kind, None, name) for kind, name in (
        ("taken", "anna"), ("taken", "bert"), ("taken", "anna"), ("released", "anna"),
    )]  # fmt: skip


def holds(store: LocalStore) -> list[str]:
    """The items that somebody has taken and not given back, as their events say."""
    last = {event["item_id"]: event["kind"] for event in events(store)}
    return [item for item, kind in last.items() if kind == "taken"]


def test_who_moves_on_without_a_verdict_holds_one_item(browse: Open, store: LocalStore) -> None:
    anna, page = browse("anna"), "/"
    for item in [row["item_id"] for row in small_lake.queue()][:8]:
        answer = anna.post("/next", data=anna.form(page, "/next"), follow_redirects=False)
        page = answer.headers["location"]
        assert page == f"/items/{item}?day=2026-03-07"
        assert holds(store) == [item]
    assert "alert0" in anna.post("/next", data=anna.form("/", "/next")).url.path  # it is hers, and she goes back to it
    assert holds(store) == ["alert0"]


def test_next_that_is_sent_again_takes_one_item_and_gives_one_back(browse: Open, store: LocalStore) -> None:
    anna = browse("anna")
    anna.submit("/", "/next")
    form = anna.form("/items/alert9?day=2026-03-07", "/next")
    pages = [
        anna.post("/next", data={**form, "state": "open"}, follow_redirects=False).headers["location"] for _ in "12"
    ]
    assert pages == ["/items/alert6?day=2026-03-07&state=open"] * 2
    assert [(event["item_id"], event["kind"]) for event in events(store)] == [
        ("alert9", "taken"),
        ("alert6", "taken"),
        ("alert9", "released"),
    ]


def test_what_one_has_taken_without_next_is_given_back_and_what_is_last_is_kept(
    browse: Open, store: LocalStore
) -> None:
    anna = browse("anna")
    anna.submit(DAY, TAKE)
    anna.submit(DAY, "/next")
    assert holds(store) == ["alert1"]
    form = {**anna.form("/items/alert1?day=2026-03-07", "/next"), "amount_from": "5000"}
    answer = anna.post("/next", data=form)
    assert answer.status_code == 409 and "nothing is left to take with at risk from 5000: 0 of 0 are decided" in (
        answer.text
    )
    assert holds(store) == ["alert1"]


def test_nobody_loses_what_another_analyst_has_taken_meanwhile(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna", review_lock=timedelta(microseconds=1)), browse("bert")
    anna.submit(DAY, TAKE)
    bert.submit(DAY, TAKE)
    anna.submit(DAY, "/next")
    assert kinds(store)[1:] == [("taken", None, "bert"), ("taken", None, "anna")]


def test_a_queue_that_is_worked_through_has_no_next_item(browse: Open, store: LocalStore) -> None:
    browser = browse()
    for row in small_lake.queue():
        page = f"/items/{row['item_id']}?day={row['day']}"
        browser.submit(page, f"/items/{row['item_id']}/verdict", verdict="genuine")
    answer = browser.post("/next", data=browser.form("/", "/next"))
    assert answer.status_code == 409 and "nothing is left to take: 9 of 9 are decided" in answer.text
    assert "9 of 9 decided" in browser.get("/").text
    drawn = next(event for event in events(store) if event["item_id"] == "drawn8")
    assert sorted(drawn["transaction_ids"]) == ["8-3", "8-4"] and drawn["case_id"] is None


def test_events_are_in_the_future_if_a_clock_goes_back(browse: Open, store: LocalStore, root: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    bert = {"event_id": "0" * 32, "item_id": "alert2", "kind": "taken", "analyst": "bert", "account_id": "A2"}
    taken = {**bert, "number": 1, "at": later, "expires_at": later + timedelta(minutes=1)}
    small_lake.write(root, SILVER_REVIEW_EVENTS, [taken])
    assert "bert holds this until" in text_of(browse().get(CASE).text)


def test_verdicts_become_figures_of_rules_naive_and_weighted(browse: Open) -> None:
    browser = browse()
    for row in small_lake.queue():
        verdict = "fraud" if row["item_id"] in ("alert0", "alert1", "drawn8") else "genuine"
        page, action = f"/items/{row['item_id']}?day={row['day']}", f"/items/{row['item_id']}/verdict"
        marked = {"fraud": ["8-3", "8-4"]} if row["item_id"] == "drawn8" and verdict == "fraud" else {}
        browser.submit(page, action, verdict=verdict, **marked)
    text = text_of(browser.get("/rules").text)
    assert "25.0% of 8" in text  # two of eight cases are fraud, and no alert of the rule is outside the list
    assert "Fraud found 2 of 8 decided cases, 1,300.00" in text
    assert "Drawn and decided 1 of 2 accounts" in text
    assert "Share that was listed and found 50.0%" in text  # the drawn account stands for two
    assert "naively 66.7%" in text
    assert "Not flagged 2 accounts' days with fraud 1 to 2; 1 of them drawn" in text
    assert "Not flagged, amount 2,801.00 at least 1,400.50" in text


def test_an_item_is_set_aside_with_a_reason(browse: Open, store: LocalStore) -> None:
    anna = browse()
    fields, tomorrow = anna.form(CASE, VERDICT), datetime.now(UTC).date() + timedelta(days=1)
    answer = anna.post(f"{CASE}/escalate", data=fields)
    assert answer.status_code == 409 and "give a reason why alert2 is set aside" in answer.text
    for word, more, said in (
        ("note", {"note": "called"}, "The note is saved."),
        ("wait", {"until": f"{tomorrow}"}, f"waits until {tomorrow:%-d %b %Y}"),
        ("assign", {"assignee": "bert"}, "assigned to bert"),
        ("escalate", {}, "A lead is to decide."),
    ):
        answer = anna.post(f"{CASE}/{word}", data={**anna.form(CASE, VERDICT), "reason": "no answer", **more})
        assert said in text_of(answer.text), word
    assert [kind for kind, _, _ in kinds(store)] == ["noted", "waiting", "assigned", "escalated"]
    bad = anna.post(f"{CASE}/wait", data={**anna.form(CASE, VERDICT), "reason": "r", "until": "²"})
    assert bad.status_code == 409 and "is not a day" in bad.text


def test_who_begins_gets_first_what_is_assigned_to_them(browse: Open, store: LocalStore) -> None:
    anna, bert = browse("anna"), browse("bert")
    anna.post(f"{CASE}/assign", data={**anna.form(CASE, VERDICT), "reason": "knows the shop", "assignee": "bert"})
    assert "Account <img" in text_of(anna.submit("/", "/next"))
    assert items.next_of(store, small_lake.DAY, "bert").item.item_id == "alert2"
    assert "Account A2" in text_of(bert.submit("/", "/next"))
    assert "Account A2" not in text_of(bert.submit(DAY, "/next"))  # it is skipped, and does not come back at once


def test_what_people_did_is_a_page_of_some_days(browse: Open) -> None:
    browser = browse()
    browser.submit(CASE, TAKE)
    browser.submit(DAY, VERDICT, verdict="fraud")
    text = text_of(browser.get("/people").text)
    assert "8 of 9 items are open" in text and re.search(r"anna 1 1 0 0 800\.00 0\.\d\d 0 0 0 0", text)
    assert "Nobody did anything in these days." in browser.get("/people?from=2001-01-01&to=2001-01-31").text
    for query in ("to=0001-01-01", "from=9999-12-01&to=9999-12-31"):  # where the calendar begins and ends
        assert "Nobody did anything in these days." in browser.get(f"/people?{query}").text
    for query in ("from=2026-03-02&to=2026-03-01", "from=²"):
        assert browser.get(f"/people?{query}").status_code == 409
