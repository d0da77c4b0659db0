"""Kinds of fraud by rule and by reason, counted by hand. No model is trained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from fraudlake.model import kinds
from fraudlake.model.history import Rows, account_numbers
from fraudlake.model.kinds import Kind
from fraudlake_cli.commands.model import _trained

NOT_FRAUD = 0


class Largest:
    """A classifier whose strongest reason is the largest of two features."""

    features = ("amount", "count_day")
    encodings: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def contributions(matrix: np.ndarray) -> np.ndarray:
        return np.column_stack([matrix, np.full(len(matrix), 99.0)])


LARGEST: Any = Largest


def rows(*entries: tuple[int, int, float, float, int]) -> Rows:
    """Account, time, the two features, and whether it is fraud."""
    account, time, amount, count, fraud = (np.array(column) for column in zip(*entries, strict=True))
    matrix = np.column_stack([amount, count]).astype(np.float32)
    ones = np.ones(len(entries))
    return Rows(time, matrix, fraud.astype(float), ones, account, ones, Largest.features)


EARLIER = rows((1, 10, 5, 1, 1), (2, 11, 5, 1, 1), (3, 12, 1, 5, NOT_FRAUD))
TESTED = rows((1, 20, 5, 1, 1), (4, 21, 5, 1, 1), (5, 22, 1, 5, 1), (6, 23, 1, 5, 1), (7, 24, 9, 9, NOT_FRAUD))
REVIEWED = np.array([True, True, True, False, True])


def test_frauds_are_of_the_kind_of_their_rules_or_of_the_strongest_reason() -> None:
    pair, busy = frozenset({"pair"}), frozenset({"pair", "busy"})
    alerted = {(1, 10): pair, (1, 20): pair, (4, 21): busy, (3, 12): busy, (1, 99): busy}
    assert kinds.count_kinds([EARLIER], TESTED, REVIEWED, LARGEST, alerted) == [
        Kind("pair", learned=1, tested=2, found=2),
        Kind("no rule, count_day", learned=0, tested=2, found=1),
        Kind("busy", learned=0, tested=1, found=1),
    ]


def test_without_rules_only_reasons_count_and_a_kind_that_was_not_learned_is_new() -> None:
    found = kinds.count_kinds([EARLIER], TESTED, REVIEWED, LARGEST, {})
    assert found == [Kind("no rule, amount", 2, 2, 2), Kind("no rule, count_day", 0, 2, 1)]
    assert [kind.is_new for kind in found] == [False, True]


def test_no_fraud_has_no_kinds() -> None:
    genuine = rows((3, 12, 1, 5, NOT_FRAUD))
    assert kinds.count_kinds([EARLIER], genuine, np.array([True]), LARGEST, {}) == []


def test_alerts_name_payments_by_the_number_of_the_account_and_the_time() -> None:
    alerts = pa.table(
        {
            "rule": ["pair", "busy", "pair"],
            "account_id": ["ann", "ann", "bob"],
            "timestamp": pa.array([1_000_001, 1_000_001, 2], pa.timestamp("us", "UTC")),
        }
    )
    lake: Any = SimpleNamespace(store=SimpleNamespace(query=lambda *_: alerts))
    ann, bob = account_numbers(pa.chunked_array([["ann", "bob"]])).to_pylist()
    assert kinds.read_alerted(lake) == {
        (ann, 1_000_001): frozenset({"pair", "busy"}),
        (bob, 2): frozenset({"pair"}),
    }


def test_train_lists_kinds_and_which_are_new() -> None:
    listed = [
        {"name": "pair", "learned": 41, "tested": 17, "found": 17, "new": False},
        {"name": "no rule, amount", "learned": 0, "tested": 12, "found": 3, "new": True},
    ]
    result = {"version": "2", "new": True, "metrics": {}, "reason": "why", "kinds": listed}
    assert _trained(result).splitlines()[1:] == [
        "fraud of the test days, by rule or, without one, by the model's strongest reason:",
        "  pair: 41 learned, 17 tested, 17 found at the budget (100 %)",
        "  no rule, amount: new, 12 tested, 3 found at the budget (25 %)",
        "why",
    ]
    many = _trained({**result, "kinds": 13 * listed[:1]}).splitlines()
    assert many[12] == "  and 3 more, which --json lists"
