"""A lake of a few rows for tests of the desk, made without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fraudlake import tables
from fraudlake.gold import cases
from fraudlake.lake.local_store import LocalStore
from fraudlake.settings import load

MARCH_7 = datetime(2026, 3, 7, tzinfo=UTC)


class Payment(NamedTuple):
    """A transaction; ``rules`` have raised an alert on it."""

    id: str
    account: str
    amount: float | None = 10.0
    hour: float = 12
    rules: tuple[str, ...] = ()
    probability: float | None = None

    @property
    def at(self) -> datetime:
        return MARCH_7 + timedelta(hours=self.hour)


def open_store(root: Path, **settings: Any) -> LocalStore:
    root.mkdir(exist_ok=True)
    (root / "lake.json").write_text(json.dumps({"format": 1}))
    return LocalStore(load(lake=root, **settings))


def fill(store: LocalStore, payments: Iterable[Payment], version: int = 1) -> None:
    """Put transactions, their alerts, predictions and cases into a lake."""
    silver, alerts, scored = [], [], []
    for one in payments:
        common = {"transaction_id": one.id, "account_id": one.account, "timestamp": one.at, "amount": one.amount}
        silver.append({**common, "date": one.at.date()})
        raised = {"rule_version": version, "entity": "account", "entity_key": one.account, "detected_at": one.at}
        alerts += [{**common, **raised, "alert_id": f"{one.id} {rule}", "rule": rule} for rule in one.rules]
        if one.probability is not None:
            scored.append({**common, "probability": one.probability, "scored_at": one.at, "date": one.at.date()})
    append(store, tables.SILVER_TRANSACTIONS, silver)
    append(store, tables.SILVER_ALERTS, alerts)
    append(store, tables.GOLD_FRAUD_PREDICTIONS, scored)
    make_cases(store)


def append(store: LocalStore, table: tables.Table, rows: list[dict[str, Any]]) -> None:
    """Append rows; what they do not name is null."""
    if rows:
        store.append(table, pa.Table.from_pylist(rows, table.schema))


def make_cases(store: LocalStore) -> None:
    """Bring the cases up to date with the alerts."""
    raised = store.query(f"SELECT {cases.COLUMNS} FROM silver_alerts", tables.SILVER_ALERTS)
    known = store.query("SELECT * FROM gold_cases", tables.GOLD_CASES)
    changes = cases.changes(known, raised, store.settings.case_gap, store.settings.case_length)
    gone = changes.filter(changes["gone"])["case_id"].to_pylist()
    named = ", ".join(f"'{case}'" for case in [*gone, *changes["case_id"].to_pylist()])
    if len(changes):
        kept = changes.filter(pa.array([not one for one in changes["gone"].to_pylist()])).drop_columns(["gone"])
        store.append(tables.GOLD_CASES, known.slice(0, 0))
        store.replace(tables.GOLD_CASES, kept, f"case_id IN ({named})")


def verdicts(store: LocalStore, given: dict[str, bool]) -> None:
    """Put verdicts on transactions of 7 March into a lake."""
    rows = [
        {"transaction_id": id_, "verdict": is_fraud, "analyst": "ann", "decided_at": MARCH_7, "date": MARCH_7.date()}
        for id_, is_fraud in given.items()
    ]
    store.append(tables.SILVER_VERDICTS, pa.Table.from_pylist(rows, tables.SILVER_VERDICTS.schema))
