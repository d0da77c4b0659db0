"""A small lake for the desk, written by delta-rs: ten accounts, two terminals, alerts, cases and a queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from fraudlake import tables
from fraudlake.lake import lake_format
from fraudlake.settings.columns import DeclaredColumn
from fraudlake.tables import Table

DAY = date(2026, 3, 7)
NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
HOSTILE = "<img src=x onerror=alert(1)>'\"&"
"""An account's id; it is a part of addresses, attributes and texts."""
SENTENCE = "</p><script>alert('sentence')</script>"
COLUMNS = {"terminal_id": {"from": "terminalId", "type": "string"}}
SILVER = tables.with_declared(
    tables.SILVER_TRANSACTIONS, {name: DeclaredColumn.model_validate(given) for name, given in COLUMNS.items()}
)
ACCOUNTS = [f"A{number}" for number in range(9)] + [HOSTILE]


def write(root: Path, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a table, in all its columns."""
    filled = [{name: row.get(name) for name in table.schema.names} for row in rows]
    folder = root / "tables" / table.name
    if not DeltaTable.is_deltatable(str(folder)):
        DeltaTable.create(
            folder, table.schema, partition_by=[*table.partitioned_by], configuration=dict(table.properties)
        )
    if filled:
        write_deltalake(folder, pa.Table.from_pylist(filled, table.schema), mode="append")


def make(root: Path) -> Path:
    """Make the lake: each account pays five times; all but two of them have an alert, and are in the queue."""
    lake_format.mark(root)
    write(root, tables.BRONZE_TRANSACTIONS, [_landed(row) for row in transactions()])
    defined = {"columns": COLUMNS, "entities": {"terminal": ["terminal_id"]}}
    write(root, tables.SILVER_DEFINITION, [
        {"change": 1, "setting": name, "value": json.dumps(value), "author": "settings", "changed_at": NOON}
        for name, value in defined.items()
    ])  # fmt: skip
    write(root, SILVER, transactions())
    write(root, tables.SILVER_ALERTS, alerts())
    write(root, tables.GOLD_CASES, map(case, alerts()))
    write(root, tables.GOLD_REVIEW_QUEUE, queue())
    write(root, tables.GOLD_FRAUD_PREDICTIONS, predictions())
    write(root, tables.SILVER_QUARANTINE, [
        {**_landed(row), "reasons": ["amount_is_positive"], "quarantined_at": NOON, "accountId": SENTENCE}
        for row in transactions()[:4]
    ])  # fmt: skip
    return root


def transactions() -> list[dict[str, Any]]:
    """Five payments of each account at one of two terminals; the last two are a small and a large one."""
    return [
        {
            "transaction_id": f"{number}-{at}",
            "account_id": account,
            "timestamp": NOON - timedelta(days=(4 - at) * 2 if at < 3 else 0) + timedelta(minutes=number * 5 + at),
            "date": (NOON - timedelta(days=(4 - at) * 2 if at < 3 else 0)).date(),
            "amount": (20.0 + number, 35.5, 12.0 + number, 0.5, 600.0 + 100 * number)[at],
            "label": at == 4 and number % 3 == 0,
            "source": "day.parquet",
            "position": number * 5 + at,
            "terminal_id": f"T{number % 2}",
        }
        for number, account in enumerate(ACCOUNTS)
        for at in range(5)
    ]


def _landed(row: Mapping[str, Any]) -> dict[str, Any]:
    position = {"_source_file": row["source"], "_source_row": row["position"], "_ingested_at": NOON}
    return {
        **position,
        "dt": row["timestamp"],
        "accountId": row["account_id"],
        **{name: row[name] for name in ("amount", "date")},
    }


def alerts() -> list[dict[str, Any]]:
    """An alert of all accounts but the last two regular ones; the hostile one has a hostile sentence."""
    rows = {row["transaction_id"]: row for row in transactions()}
    raised = []
    for number, account in enumerate(ACCOUNTS):
        if number in (7, 8):
            continue
        small, large = rows[f"{number}-3"], rows[f"{number}-4"]
        evidence = [
            {"variable": variable, **{name: row[name] for name in ("transaction_id", "timestamp", "amount")}}
            for variable, row in (("SMALL", small), ("LARGE", large))
        ]
        raised.append(
            {
                "alert_id": f"alert{number}",
                "rule": "small_then_large",
                "account_id": account,
                **{name: large[name] for name in ("transaction_id", "timestamp", "amount")},
                "explanation": f"{account}: a small payment, then a large one. {SENTENCE}",
                "detected_at": NOON + timedelta(hours=1),
                "kind": "small_then_large",
                "evidence": evidence,
                "evidence_columns": [[("terminal_id", row["terminal_id"])] for row in (small, large)],
                "measures": [("seconds_between", "60")],
                "rule_version": 1,
                "entity": "account",
                "entity_key": account,
            }
        )
    return raised


def case(alert: Mapping[str, Any]) -> dict[str, Any]:
    """The case of a single alert."""
    return {
        "case_id": alert["alert_id"],
        **{name: alert[name] for name in ("entity", "entity_key", "account_id", "detected_at")},
        "opened_at": alert["timestamp"],
        "last_alert_at": alert["timestamp"],
        "alerts": 1,
        "rules": [alert["rule"]],
        "alert_ids": [alert["alert_id"]],
        "transaction_ids": [alert["transaction_id"]],
        "accounts": 1,
        "amount_at_risk": alert["amount"],
        "date": alert["timestamp"].date(),
    }


def add_terminal_case(root: Path) -> list[dict[str, Any]]:
    """Add a case of terminal T0: alerts on the large payments of A0 and A4, and on two of A2; return the alerts."""
    rows = {row["transaction_id"]: row for row in transactions()}
    raised = [
        {
            "alert_id": f"busy {name}",
            "rule": "busy",
            **{key: rows[name][key] for key in ("account_id", "transaction_id", "timestamp", "amount")},
            "detected_at": NOON + timedelta(hours=1),
            "kind": "threshold",
            "evidence": [
                {"variable": "ROW", **{key: rows[one][key] for key in ("transaction_id", "timestamp", "amount")}}
                for one in ("0-4", name)
            ],
            "rule_version": 1,
            "entity": "terminal",
            "entity_key": "T0",
        }
        for name in ("0-4", "2-3", "2-4", "4-4")
    ]
    of_all = {
        "last_alert_at": raised[-1]["timestamp"],
        "alerts": len(raised),
        "alert_ids": [alert["alert_id"] for alert in raised],
        "transaction_ids": [alert["transaction_id"] for alert in raised],
        "accounts": 3,
    }
    write(root, tables.SILVER_ALERTS, raised)
    write(root, tables.GOLD_CASES, [{**case(raised[0]), **of_all}])
    return raised


def queue() -> list[dict[str, Any]]:
    """The cases, the most valuable first, and one of the two other accounts, drawn at random."""
    cases = sorted(map(case, alerts()), key=lambda row: -row["amount_at_risk"])
    listed = [
        {
            "rank": rank,
            "item_id": row["case_id"],
            "kind": "case",
            **{name: row[name] for name in ("case_id", "entity", "entity_key", "account_id", "amount_at_risk")},
            "probability": 0.5,
            "priority": row["amount_at_risk"] / 2,
            "inclusion_probability": 1.0,
            "reasons": f"small_then_large raised 1 alert on {row['entity_key']} {SENTENCE}",
        }
        for rank, row in enumerate(cases, 1)
    ]
    drawn = {
        "rank": len(listed) + 1,
        "item_id": "drawn8",
        "kind": "drawn",
        "entity": "account",
        "entity_key": "A8",
        "account_id": "A8",
        "amount_at_risk": 1400.5,
        "inclusion_probability": 0.5,
        "population": 2,
        "reasons": "drawn at random",
    }
    return [{**row, "day": DAY, "seed": 1, "built_at": NOON + timedelta(hours=2)} for row in [*listed, drawn]]


def predictions() -> list[dict[str, Any]]:
    """A score of each payment; the large ones are likely fraud."""
    return [
        {
            **{name: row[name] for name in ("transaction_id", "account_id", "timestamp", "amount", "label", "date")},
            "probability": 0.95 if row["amount"] > 500 else 0.03,
            "prediction": row["amount"] > 500,
            "reasons": [f"the amount is {row['amount']:.2f}"] if row["amount"] > 500 else None,
            "model_version": "1",
            "scored_from": "silver",
            "scored_at": NOON + timedelta(hours=1),
        }
        for row in transactions()
    ]
