"""Forget: a forgotten account leaves the state and the alerts of the entities at which it paid."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.bronze import parquet
from fraudlake.forget import plan, removal
from fraudlake.gold import account_daily
from fraudlake.operations import rebuild
from tests.forget.test_forget import NAMED, NOON, OTHER, SCHEMA, run, traces

pytestmark = pytest.mark.stream

RULES = [
    {"name": "pair", "entity": "terminal", "small_below": 1.0, "large_above": 500.0, "within": "60 s"},
    {"kind": "threshold", "name": "busy", "entity": "terminal", "aggregate": "count", "window": "60 s", "above": 2},
    {
        "kind": "pattern",
        "name": "probe",
        "entity": "terminal",
        "pattern": "SMALL{2,} LARGE",
        "define": {"SMALL": "SMALL.amount < 1", "LARGE": "LARGE.amount > 500"},
        "within": "1 minute",
        "skip": "PAST LAST ROW",
    },
]


def land(folder: Path, name: str, *values: tuple[float, str, float, str]) -> None:
    """Land rows: seconds after noon, account, amount, terminal."""
    seconds, accounts, amounts, terminals = zip(*values, strict=True)
    times = [NOON + timedelta(seconds=second) for second in seconds]
    rows = pa.table([times, accounts, amounts, [False] * len(values)], SCHEMA.names).cast(SCHEMA)
    parquet.write_own(rows.append_column("terminal_id", pa.array(terminals)), folder / f"part-own-{name}.parquet")


@pytest.mark.long
def test_other_accounts_of_a_terminal_go_on_as_if_the_account_had_never_paid(
    lake: Any, landing: Path, tmp_path: Path
) -> None:
    def opened() -> Any:
        of_terminals = {"columns": {"terminal_id": "string"}, "entities": {"terminal": "terminal_id"}}
        delivered = str(tmp_path / "delivered")
        made = lake(rules=RULES, buckets=2, shuffle_partitions=2, delivery_folder=delivered, **of_terminals)
        made.spark.conf.set("spark.sql.streaming.stateStore.rocksdb.compression", "none")
        return made

    def alerts() -> set[tuple[str, str, str]]:
        rows = (
            opened()
            .store.query(f"SELECT rule, entity_key, account_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS)
            .to_pylist()
        )
        return {tuple(row.values()) for row in rows}

    land(
        landing,
        "0",
        (0, NAMED, 0.5, "T"),
        (5, OTHER, 900.0, "T"),
        (10, OTHER, 0.5, "U"),
        (15, OTHER, 900.0, "U"),
        *((second, account, 0.5, "V") for second, account in ((600, NAMED), (601, OTHER))),
        *((second, account, 0.5, "W") for second, account in ((602, OTHER), (603, NAMED), (604, OTHER))),
        (605, NAMED, 0.5, "X"),
    )
    run(opened())
    assert alerts() == {("pair", "T", OTHER), ("pair", "U", OTHER), ("busy", "W", OTHER)}
    rebuilt = rebuild.rebuild(opened(), NOON.date(), NOON.date()).changes["silver_alerts"]
    assert (rebuilt.added, rebuilt.gone, rebuilt.same) == (0, 0, 3)
    planned = plan.plan(opened(), [NAMED])
    assert planned.rows[NAMED]["silver_alerts"] == planned.rows[NAMED]["delivered files"] == 2

    assert removal.forget(opened(), [NAMED]).traces == []
    assert traces(tmp_path, NAMED) == set()
    assert alerts() == {("pair", "U", OTHER)}
    daily = (
        opened()
        .store.query(f"SELECT account_id, alerts, transactions FROM {account_daily.TABLE.name}", account_daily.TABLE)
        .to_pylist()
    )
    assert daily == [{"account_id": OTHER, "alerts": 1, "transactions": 6}]

    # Two small ones are left at W, one at V; the flag at X is gone.
    land(landing, "1", *((610, OTHER, 900.0, terminal) for terminal in "VWX"))
    run(opened())
    assert alerts() == {
        ("pair", "U", OTHER),
        ("pair", "V", OTHER),
        ("pair", "W", OTHER),
        ("busy", "W", OTHER),
        ("probe", "W", OTHER),
    }
