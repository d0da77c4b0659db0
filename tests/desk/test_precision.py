"""Precision of rules: alerts and verdicts written by hand, and populations whose truth is known."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake.lake.local_store import LocalStore
from fraudlake.model.intervals import Estimate
from fraudlake.review.window import Window
from fraudlake.settings import load
from fraudlake.tables import GOLD_CASES, GOLD_REVIEW_QUEUE, SILVER_ALERTS, SILVER_SHADOW_ALERTS, SILVER_VERDICTS
from fraudlake_desk.queue import precision
from fraudlake_desk.queue.missed import QUEUE_COLUMNS
from fraudlake_desk.queue.precision import Precision
from fraudlake_desk.queue.reviewed import Reviewed
from tests.desk.test_reviewed import add, decide, item

DAY = date(2026, 3, 7)
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


def queue(*items: tuple[str, str, str, int | None], day: date = DAY) -> pa.Table:
    """Rows of a queue: id, kind, account and population."""
    rows = [(day, name, kind, account, 1.0, population, False) for name, kind, account, population in items]
    return pa.Table.from_pylist([dict(zip(QUEUE_COLUMNS, row, strict=True)) for row in rows])


def alert(name: str, account: str, is_fraud: int | None = None, rule: str = "r", day: date = DAY) -> dict[str, Any]:
    return {"rule": rule, "version": 1, "alert_id": name, "account_id": account, "day": day, "is_fraud": is_fraud}


def test_alerts_weigh_by_their_account_and_who_has_a_listed_case_tells_of_itself_alone() -> None:
    listed = [alert("l0", "a", 1), alert("l0 again", "a", 1), alert("l1", "b", 0), alert("l2", "c")]
    unlisted = [alert("of a, of no listed case", "a")]
    others = [alert("u1", "x", 1), alert("u2", "x", 1), alert("u3", "x", 0), alert("u4", "y", 0)]
    others += [alert(f"v{number}", f"v{number}") for number in range(16)]
    elsewhere = [alert("no queue", "z", 1, day=DAY + timedelta(days=1)), alert("s", "q", rule="s")]
    rows = queue(
        *(("l0", "case", "a", None), ("l1", "case", "b", None), ("l2", "case", "c", None)),
        *(("x", "drawn", "x", 100), ("y", "drawn", "y", 100)),
    )
    verdicts = {"l0": "fraud", "l1": "genuine", "l2": "unsure", "x": "fraud", "y": "genuine"}
    cases = {"l0": "l0", "l0 again": "l0", "l1": "l1", "l2": "l2"}

    alerts = pa.Table.from_pylist([*listed, *unlisted, *others, *elsewhere])
    of = precision.weigh(alerts, rows, verdicts, cases)

    # Listed and decided are 3, of which 2 are right. Of 20 others 4 are drawn, of which 2 are right.
    assert of["r", 1].weighted.value == pytest.approx((2 + 20 / 2) / (3 + 20))
    assert (of["r", 1].of_queues, of["r", 1].drawn) == (25, 4)
    assert (2 + 2) / 23 <= of["r", 1].weighted.low < of["r", 1].weighted.high <= (2 + 18) / 23
    assert of["s", 1].weighted == Estimate(None, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 9])
def test_the_interval_of_a_rules_precision_holds_the_truth(most: int) -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(100):
        alerts_of = rng.integers(1, most, 400, endpoint=True)
        rate = rng.choice([0.1, 0.5, 0.9])
        is_right = [rng.random(count) < rate * rng.random() * 2 for count in alerts_of]
        draws = rng.choice(np.arange(30, 400), 12, replace=False)
        seen = {*range(30), *map(int, draws)}
        rows = queue(
            *((f"{number} 0", "case", str(number), None) for number in range(30)),
            *((f"drawn {number}", "drawn", str(number), 1000) for number in draws),
        )
        alerts = [
            alert(f"{number} {nth}", str(number), int(right) if number in seen else None)
            for number, of in enumerate(is_right)
            for nth, right in enumerate(of)
        ]
        verdicts = dict.fromkeys(rows["item_id"].to_pylist(), "genuine")
        cases = {one["alert_id"]: f"{one['account_id']} 0" for one in alerts}
        of = precision.weigh(pa.Table.from_pylist(alerts), rows, verdicts, cases)["r", 1].weighted
        held += of.low <= np.concatenate(is_right).mean() <= of.high
    assert held >= 90


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "lake.json").write_text(json.dumps({"format": 1}))
    return LocalStore(load(lake=tmp_path))


def raised(name: str, account: str, *evidence: str, rule: str = "r", version: int = 2) -> dict[str, Any]:
    parts = [{"variable": "A", "transaction_id": part, "timestamp": NOON, "amount": 1.0} for part in (*evidence, name)]
    of = {"alert_id": name, "account_id": account, "transaction_id": name, "timestamp": NOON}
    return {**of, "rule": rule, "rule_version": version, "evidence": parts}


def verdict(name: str, is_fraud: bool | None, hour: int = 0) -> dict[str, Any]:
    return {"transaction_id": name, "verdict": is_fraud, "analyst": "ann", "decided_at": NOON + timedelta(hours=hour)}


def test_an_alert_is_right_if_the_latest_verdict_on_one_of_its_payments_is_fraud(store: LocalStore) -> None:
    add(
        store,
        SILVER_ALERTS,
        *(raised("1", "1"), raised("2", "2", "before"), raised("3", "3"), raised("4", "4"), raised("5", "5")),
        *(raised("old", "1", version=1), raised("other", "1", rule="s")),
        {**raised("later", "1"), "timestamp": NOON + timedelta(days=1)},
    )
    add(store, SILVER_SHADOW_ALERTS, raised("shadow", "1", version=3))
    add(
        store,
        SILVER_VERDICTS,
        *(verdict("1", False), verdict("1", True, 1), verdict("2", False), verdict("before", True)),
        *(verdict("3", False), verdict("4", True), verdict("4", None, 1)),
        *(verdict(name, True) for name in ("old", "other", "later", "shadow")),
    )

    of = precision.measure_rules(store, None, Window(DAY, DAY), "r")

    assert of == {("r", 2): Precision(5, 3, 2), ("r", 1): Precision(1, 1, 1), ("r", 3): Precision(1, 1, 1)}
    assert of["r", 2].value == 2 / 3
    assert precision.measure_rules(store, None, Window(DAY, DAY)).keys() == {*of, ("s", 2)}
    assert precision.by_rule(store) == {"r": (5, 4), "s": (1, 1)}


def test_drawn_accounts_tell_of_the_alerts_that_no_list_had(store: LocalStore) -> None:
    add(store, SILVER_ALERTS, *(raised(str(number), str(number)) for number in range(4)))
    add(store, GOLD_CASES, *({"case_id": str(number), "alert_ids": [str(number)]} for number in range(2)))
    add(store, GOLD_REVIEW_QUEUE, item("0", "0", "case"), item("1", "1", "case"), item("x", "3"), item("y", "8"))
    decide(store, ("0", "fraud", "0"), ("1", "fraud", "1"), ("x", "genuine", "3"), ("y", "genuine", "8"))
    add(store, SILVER_VERDICTS, verdict("0", True), verdict("1", True), verdict("3", False), verdict("8", False))

    of = precision.measure_rules(store, Reviewed.read(store), Window(DAY, DAY))["r", 2]

    assert (of.alerts, of.decided, of.right, of.of_queues, of.drawn) == (4, 3, 2, 4, 1)
    assert of.weighted.value == 2 / 4
