"""Evidence of long matches and windows: its first and last rows, and the number of all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from fraudlake.delivery import event
from fraudlake.detection import backtest, evidence
from fraudlake.errors import UsageError
from fraudlake.keyed.entity_key import THE_ACCOUNT
from fraudlake.rules import compiled_rule
from fraudlake.rules.columns import query_columns
from fraudlake.rules.compiled_rule import MOST_ROWS, Alert
from fraudlake.rules.kinds import Rule, pattern
from fraudlake.rules.kinds.pattern import PatternRule
from fraudlake.rules.kinds.threshold import ThresholdRule

RUN = PatternRule(
    name="run",
    pattern="A B+ C",
    within=timedelta(days=30),
    define={"A": "A.amount < 1", "B": "B.amount BETWEEN 1 AND 500", "C": "C.amount > 500"},
    measures={"paid": "COUNT(*)", "spent": "SUM(B.amount)"},
)
MINUTE = 60_000_000


def paid(payments: int) -> pa.Table:
    """Return payments of an account, a minute apart: a small one, usual ones, a large one."""
    return pa.table(
        {
            "transaction_id": [f"t{number}" for number in range(payments)],
            "account_id": ["7"] * payments,
            "timestamp": pa.array([number * MINUTE for number in range(payments)], pa.timestamp("us", "UTC")),
            "amount": [0.5, *(float(number % 9 + 1) for number in range(payments - 2)), 900.0],
            "label": [False] * payments,
            "source": ["part-1"] * payments,
            "position": range(payments),
        }
    )


def alerts(rule: Rule, payments: int) -> list[Alert]:
    return [*rule.compile(query_columns({})).evaluate(paid(payments)).alerts]


def described(rule: Rule, payments: int) -> dict[str, Any]:
    *_, found = evidence.described(paid(payments), alerts(rule, payments), ["timestamp", "amount"], THE_ACCOUNT)
    last: dict[str, Any] = found.to_pylist()[-1]
    return last


@pytest.fixture
def without_bound(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def all_rows(low: int, high: int) -> tuple[range, range]:
        return compiled_rule.shown(low, high, most=high - low)

    monkeypatch.setattr(pattern, "shown", all_rows)
    return monkeypatch


@pytest.mark.parametrize(
    ("low", "high", "most", "numbers"),
    [
        (3, 7, 4, [3, 4, 5, 6]),
        (3, 8, 4, [3, 4, 6, 7]),
        (0, 9, 5, [0, 1, 6, 7, 8]),
        (0, 9, 2, [0, 8]),
        (5, 6, 100, [5]),
    ],
)
def test_the_first_and_the_last_rows_are_shown(low: int, high: int, most: int, numbers: list[int]) -> None:
    first, last = compiled_rule.shown(low, high, most)
    assert [*first, *last] == numbers


@pytest.mark.parametrize("further", [1, 2, 30, 5_000])
def test_a_long_match_has_its_first_and_last_rows_and_the_number_of_all(further: int) -> None:
    payments, half = MOST_ROWS + further, MOST_ROWS // 2
    (alert,) = alerts(RUN, payments)
    assert list(alert.rows) == [*range(half), *range(payments - half, payments)]
    assert list(alert.roles) == ["A", *["B"] * (MOST_ROWS - 2), "C"]
    assert alert.left_out == further
    assert json.loads(described(RUN, payments)["measures"])["evidence_rows"] == payments


@pytest.mark.parametrize("payments", [4, 7, MOST_ROWS - 1, MOST_ROWS, MOST_ROWS + 1, 700])
def test_the_bound_changes_nothing_but_evidence_and_the_count(payments: int, without_bound: pytest.MonkeyPatch) -> None:
    unbounded = described(RUN, payments)
    of_all = evidence.table(paid(payments), alerts(RUN, payments), (), THE_ACCOUNT)
    without_bound.undo()
    bounded = described(RUN, payments)
    of_bound = evidence.table(paid(payments), alerts(RUN, payments), (), THE_ACCOUNT)
    if payments > MOST_ROWS:
        all_parts, parts = (json.loads(alert.pop("evidence")) for alert in (unbounded, bounded))
        assert (len(all_parts), len(parts)) == (payments, MOST_ROWS)
        assert parts == all_parts[: MOST_ROWS // 2] + all_parts[-MOST_ROWS // 2 :]
        measures = json.loads(bounded.pop("measures"))
        assert measures == {**json.loads(unbounded.pop("measures")), "evidence_rows": payments}
    assert bounded == unbounded  # the first and the last transaction, which make the alert_id, and the explanation
    stories = [evidence.story(table.to_pylist()[0]) for table in (of_all, of_bound)]
    assert stories == [unbounded["explanation"]] * 2
    assert backtest.matches(RUN, of_bound) == backtest.matches(RUN, of_all)


def test_a_window_of_any_length_has_its_last_rows_and_their_number() -> None:
    busy = ThresholdRule(name="busy", aggregate="count", window=timedelta(days=30), above=200)
    found = alerts(busy, 6_000)
    assert len(found) == 5_800
    assert {len(alert.rows) for alert in found} == {20}
    assert [*found[-1].rows] == [*range(5_980, 6_000)]
    assert found[-1].all_measures == {"count": 6_000, "transactions": 6_000}


def test_alerts_are_described_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ThresholdRule(name="busy", aggregate="count", window="3 transactions", above=1)
    rows, found = paid(40), alerts(busy, 40)
    (at_once,) = evidence.described(rows, found, ["amount"], THE_ACCOUNT)
    monkeypatch.setattr(evidence, "AT_ONCE", 7)
    parts = [*evidence.described(rows, iter(found), ["amount"], THE_ACCOUNT)]
    assert [len(part) for part in parts] == [7, 7, 7, 7, 7, 4]
    assert pa.concat_tables(parts).to_pylist() == at_once.to_pylist()


def test_a_measure_of_the_name_of_the_count_is_refused() -> None:
    rule = PatternRule(name="run", pattern="A B", define={"B": "B.amount > 1"}, measures={"evidence_rows": "COUNT(*)"})
    with pytest.raises(UsageError, match="run: evidence_rows counts an alert's rows: give the measure another name"):
        rule.compile(query_columns({}))


def test_a_receiver_gets_the_number_of_all_rows() -> None:
    found = described(RUN, MOST_ROWS + 20)
    alert = {
        "alert_id": "a",
        "entity_key": "7",
        "account_id": "7",
        "detected_at": None,
        "evidence": json.loads(found["evidence"]),
        "evidence_columns": None,
        "measures": [*json.loads(found["measures"]).items()],
    }
    sent = event.make_event(alert, "lake")["data"]
    assert (len(sent["evidence"]), sent["measures"]["evidence_rows"]) == (MOST_ROWS, MOST_ROWS + 20)
