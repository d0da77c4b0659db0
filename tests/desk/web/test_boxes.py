"""Boxes: a case with more payments than a form has fields is decided as a whole, or in part."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.tables import SILVER_REVIEW_EVENTS
from fraudlake_desk.web import boxes
from fraudlake_desk.web.errors import PageError
from tests.desk import small_lake
from tests.desk.page import text_of
from tests.desk.web.conftest import Open

PAYMENTS = 2_600
NAMES = [f"p{number:04}" for number in range(PAYMENTS)]
ON_A_LAPTOP = pytest.mark.parametrize("open_store", ["laptop"], indirect=True)
"""The stand-in for a warehouse answers seven rows at a time."""


@pytest.fixture
def case(root: Path) -> str:
    """The page of a case of 2,600 payments of 1.00; they are stored, and named by the case, in another order."""
    paid = [
        {
            "transaction_id": name,
            "account_id": "busy",
            "timestamp": small_lake.NOON + timedelta(seconds=number),
            "date": small_lake.DAY,
            "amount": 1.0,
        }
        for number, name in enumerate(NAMES)
    ]
    small_lake.write(root, small_lake.SILVER, reversed(paid))
    of_one = {**small_lake.alerts()[0], "alert_id": "many", "account_id": "busy", "entity_key": "busy"}
    case = {**small_lake.case(of_one), "transaction_ids": sorted(NAMES, key=lambda name: name[::-1])}
    small_lake.write(root, tables.GOLD_CASES, [case])
    return "/items/many"


def decisions(store: LocalStore) -> list[tuple[set[str], float | None]]:
    table = SILVER_REVIEW_EVENTS
    rows = store.query(f"SELECT * FROM {table.name} WHERE verdict IS NOT NULL ORDER BY number", table).to_pylist()
    assert all({*row["transaction_ids"]} == {*NAMES} for row in rows)
    return [({*(row["fraud_ids"] or ())}, row["fraud_amount"]) for row in rows]


@pytest.mark.slow
@ON_A_LAPTOP
def test_the_first_payments_have_a_box_each_and_others_share_one(browse: Open, store: LocalStore, case: str) -> None:
    browser, verdict = browse(), f"{case}/verdict"
    form = browser.form(case, verdict)
    assert form["fraud"] == NAMES[: boxes.MOST] and len(form["others"]) == 1
    assert "2,100 later payments" in text_of(browser.get(case).text)
    browser.submit(case, verdict, verdict="fraud")
    browser.submit(case, verdict, verdict="fraud", others=[])
    browser.submit(case, verdict, verdict="fraud", fraud=["p0007", "p2599"], others=[])
    assert decisions(store) == [
        ({*NAMES}, PAYMENTS),
        ({*NAMES[: boxes.MOST]}, boxes.MOST),
        ({"p0007", "p2599"}, 2.0),
    ]
    page = text_of(browser.get(case).text)
    assert "1 later payment, marked" in page and "2,099 later payments, not marked" in page
    browser.submit(case, verdict, verdict="fraud")  # as the page has it
    browser.submit(case, verdict, verdict="genuine")
    assert decisions(store)[3:] == [({"p0007", "p2599"}, 2.0), (set(), None)]


@pytest.mark.slow
@ON_A_LAPTOP
def test_a_form_is_refused_if_the_item_has_other_payments_now(browse: Open, store: LocalStore, case: str) -> None:
    browser, verdict = browse(), f"{case}/verdict"
    form = {**browser.form(case, verdict), "verdict": "fraud", "others": [f"500-2599 {'0' * 64}"]}
    answer = browser.post(verdict, data=form)
    assert answer.status_code == 409 and "have changed since this page was made" in answer.text
    assert decisions(store) == []


def rows(marked: set[int], count: int = boxes.MOST + 5) -> list[dict[str, object]]:
    return [{"transaction_id": f"t{at}", "is_marked": at in marked} for at in range(count)]


def test_boxes_name_their_payments_by_position() -> None:
    ids = [f"t{at}" for at in range(boxes.MOST + 5)]
    marked, others = boxes.shared(rows({3, 500, 501, 503}))
    assert (marked.payments, marked.is_marked) == (3, True) and marked.value.startswith("500-501,503-503 ")
    assert boxes.ids(marked.value, ids) == ["t500", "t501", "t503"]
    assert (others.is_marked, boxes.ids(others.value, ids)) == (False, ["t502", "t504"])
    assert boxes.shared(rows(set(), boxes.MOST)) == []


@pytest.mark.parametrize("spans", ["", "x", "1", "5-4", "3-4,4-5", "-1-2", "7-8,1-2"])
def test_a_value_that_no_page_has_is_refused(spans: str) -> None:
    ids = [f"t{at}" for at in range(boxes.MOST + 5)]
    hash_ = boxes.shared(rows(set()))[0].value.split()[1]
    with pytest.raises(PageError, match="not a form of the desk"):
        boxes.ids(f"{spans} {hash_}", ids)
