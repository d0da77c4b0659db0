"""Queues, cases and events of a lake become estimates; what they are is tested in test_missed.py."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.lake.store import Store
from fraudlake.review import event_log
from fraudlake.review.event import Event, Verdict
from fraudlake.settings import load
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE, SILVER_ALERTS, SILVER_REVIEW_EVENTS
from fraudlake_desk.queue.reviewed import Reviewed
from tests.conftest import FraudlakeHere
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, detected

DAY = date(2026, 3, 7)
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "lake.json").write_text(json.dumps({"format": 1}))
    return LocalStore(load(lake=tmp_path))


def add(store: Store, table: tables.Table, *rows: dict[str, Any]) -> None:
    store.append(table, pa.Table.from_pylist(list(rows), table.schema))


def item(name: str, account: str, kind: str = "drawn", day: date = DAY, amount: float = 10.0) -> dict[str, Any]:
    return {
        "day": day,
        "item_id": name,
        "kind": kind,
        "account_id": account,
        "amount_at_risk": amount,
        "population": 100,
    }


def decide(store: Store, *verdicts: tuple[str, Verdict, str]) -> None:
    """Write verdicts on items, each about one transaction."""
    events = [
        Event(
            str(number), name, "verdict", "ann", NOON, "", "account", "", verdict, transaction_ids=(of,), number=number
        )
        for number, (name, verdict, of) in enumerate(verdicts, 1)
    ]
    store.append(SILVER_REVIEW_EVENTS, event_log.rows(events))


def test_a_lake_without_a_queue_or_without_a_decision_has_no_estimates(store: LocalStore) -> None:
    assert Reviewed.read(store) is None
    add(store, GOLD_REVIEW_QUEUE, item("x", "9"))
    assert Reviewed.read(store) is None


def test_cases_that_have_become_one_since_they_were_listed_are_one_item(store: LocalStore) -> None:
    add(store, GOLD_CASES, {"case_id": "a", "alert_ids": ["a", "b"]})
    add(store, GOLD_REVIEW_QUEUE, item("b", "1", "case"), item("x", "8"), item("y", "9", amount=7.0))
    add(
        store,
        GOLD_REVIEW_QUEUE,
        item("a", "1", "case", DAY + timedelta(days=1)),
        item("old", "7", day=DAY - timedelta(days=40)),
    )
    decide(
        store,
        ("b", "fraud", "t1"),
        ("x", "genuine", "t2"),
        ("y", "fraud", "t3"),
        ("x", "genuine", "t4"),
        ("old", "fraud", "t5"),
    )

    past = Reviewed.read(store)

    assert past is not None
    assert past.verdicts == {"a": "fraud", "x": "genuine", "y": "fraud", "old": "fraud"}
    latest = past.latest()
    assert latest is not None
    assert (latest.found, latest.days, latest.unflagged.accounts.value) == (1, 1, 50)
    assert latest.unflagged.amount.value == 350
    # A drawn account's transactions stand for half of the hundred accounts, those of a case for themselves.
    assert past.weights() == {"t1": 1, "t3": 50, "t4": 50, "t5": 100}


@pytest.mark.long
@pytest.mark.stream
def test_status_and_rules_show_what_is_missed_beside_the_naive_figures(
    lake: Any, fraudlake_here: FraudlakeHere
) -> None:
    opened = lake()
    pairs = [
        Row(str(account), MARCH_7 + part * SECOND, (0.5, 600.0)[part], position=2 * account + part)
        for account in range(3)
        for part in range(2)
    ]
    detected(opened, pairs)
    before = json.loads(fraudlake_here("--lake", str(opened.root), "--json", "status").stdout)
    assert before["missed"] is None
    store = LocalStore(opened.settings)
    raised = opened.store.query(
        f"SELECT alert_id, account_id FROM {SILVER_ALERTS.name} ORDER BY account_id", SILVER_ALERTS
    ).to_pylist()
    first = raised[0]["alert_id"]
    case = {"case_id": first, "alert_ids": [first], "transaction_ids": ["p"], "rules": ["small_then_large"]}
    add(store, GOLD_CASES, case | dict.fromkeys(("opened_at", "last_alert_at"), datetime(2026, 3, 7, tzinfo=UTC)))
    add(store, GOLD_REVIEW_QUEUE, item(first, "0", "case"), item("x", "1", amount=600.0), item("y", "7"))
    decide(store, (first, "fraud", "a"), ("x", "fraud", "b"), ("y", "genuine", "c"))

    past = Reviewed.read(store)
    assert past is not None
    latest = past.latest()
    assert latest is not None and latest.recall.value == 1 / 51
    shown = json.loads(fraudlake_here("--lake", str(opened.root), "--json", "status").stdout)["missed"]
    assert shown["recall"] == {"value": 1 / 51, "low": latest.recall.low, "high": latest.recall.high}
    assert (shown["naive_recall"], shown["unflagged"]["accounts"]["value"], shown["drawn"]) == (0.5, 50, 2)
    text = " ".join(fraudlake_here("--lake", str(opened.root), "status").stdout.split())
    assert f"missed 50 ({latest.unflagged.accounts.low:.0f} to {latest.unflagged.accounts.high:.0f})" in text
    assert "reviewed 0.020 (" in text and "naively 0.500" in text

    rule = json.loads(fraudlake_here("--lake", str(opened.root), "--json", "rules", "show", "small_then_large").stdout)
    # The verdicts are on payments of no alert, so that nothing is known of these.
    assert rule["precision"]["value"] is None
    assert rule["precision"]["of_queues"] == 3
    text = fraudlake_here("--lake", str(opened.root), "rules", "show", "small_then_large").stdout
    assert "of 3 alerts of days with a queue; 0 of them are of accounts that were drawn" in text
