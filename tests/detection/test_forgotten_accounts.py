"""Forgotten accounts: their rows leave a bucket's state, and the alerts of the others stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from fraudlake.detection.live_rules import STATE, LiveRules
from fraudlake.keyed import buckets
from fraudlake.keyed.entity_key import THE_ACCOUNT
from fraudlake.keyed.rows import ROWS
from fraudlake.rules.rule_set import RuleSet
from fraudlake.settings import Settings
from tests.detection.test_live_rules import RULES, history
from tests.oracle import Row

HASHES = {"0": 10, "1": 11, "2": 12, "3": 13}


def table(rows: Iterable[Row]) -> pa.Table:
    values = [
        {
            "account": HASHES[row.account_id],
            "account_id": row.account_id,
            "transaction_id": f"t{row.position}",
            "time": row.time,
            "amount": row.amount,
            "source": row.source,
            "position": row.position,
        }
        for row in rows
    ]
    return (
        pa.Table.from_pylist(values, pa.schema([field for field in ROWS if field.name != "source"]))
        .append_column("source", pa.array([row.source for row in rows], pa.string()).dictionary_encode())
        .select(ROWS.names)
        .cast(ROWS)
    )


def alerts(raised: list[Any]) -> list[tuple[str, tuple[str, ...]]]:
    return sorted(
        (version.rule.name, tuple(row["transaction_id"] for row in json.loads(alert["evidence"])))
        for version, parts in raised
        for rows in parts
        for alert in rows.to_pylist()
    )


@pytest.mark.parametrize("seed", range(8))
def test_rules_go_on_as_if_a_forgotten_account_had_never_paid(seed: int) -> None:
    settings = Settings(rules=RULES)
    live = LiveRules.by_entity(settings, RuleSet.of(settings.rules).versions)[THE_ACCOUNT]
    rows = history(seed, 200, 4)
    first, second = rows[:110], rows[110:]

    def evaluated(first: list[Row], forget: set[str]) -> tuple[pa.Table, list[Any]]:
        _, state = live.evaluate(STATE.empty_table(), table(first), first[-1].time)
        state = live.without_accounts(state, forget)
        raised, _ = live.evaluate(state, table(second), rows[-1].time)
        return state, alerts(raised)

    state, raised = evaluated(first, {"1", "3"})
    _, expected = evaluated([row for row in first if row.account_id in ("0", "2")], set())
    _, before = evaluated(first, set())
    assert raised == expected
    assert raised != before or seed != 0
    rows_left = [pa.ipc.open_stream(row["rows"]).read_all() for row in state.to_pylist()]
    assert {account for left in rows_left for account in left["account_id"].to_pylist()} <= {"0", "2"}


def test_rows_of_an_account_leave_by_its_hash() -> None:
    rows = table([Row("0", 0, 1.0), Row("1", 1, 1.0, position=1), Row("0", 2, 1.0, position=2)])
    assert buckets.without(rows, "account", [HASHES["0"], 99])["account_id"].to_pylist() == ["1"]
    assert buckets.without(rows, "account", [99]).equals(rows)
