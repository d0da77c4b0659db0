"""A lake for the desk, written by hand without Spark: every figure in it can be counted below."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.lake import contents, lake_format
from tests.desk.small_lake import write

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOSTILE = "<script>alert(1)</script>\"'&<b>"
"""An account, a rule, a note and a sentence of the lake."""
DIGEST = "d1" * 32


def empty_lake(root: Path) -> Path:
    """Make a lake whose tables are all there and empty."""
    lake_format.mark(root)
    for table in contents.TABLES:
        write(root, table, [])
    return root


def payments() -> list[dict[str, Any]]:
    """Ten transactions of five accounts on three days; account 1 pays a small and then a large amount."""
    paid = [
        ("t0", "1", NOON, 0.5, False),
        ("t1", "1", NOON + timedelta(seconds=30), 600.0, True),
        ("t2", "2", NOON, 20.0, False),
        ("t3", "3", NOON + timedelta(hours=1), 900.0, True),
        ("t4", "1", NOON + DAY, 12.0, False),
        ("t5", "2", NOON + DAY, 700.0, False),
        ("t6", "4", NOON + DAY, 30.0, False),
        ("t7", HOSTILE, NOON + 2 * DAY, 800.0, True),
        ("t8", "2", NOON + 2 * DAY, 25.0, False),
        ("t9", "4", NOON + 2 * DAY, 8.0, False),
    ]
    return [
        {
            "transaction_id": name, "account_id": account, "timestamp": at, "amount": amount, "label": label,
            "source": "a/part-0" if number < 8 else "kafka:payments/0000000002", "position": number, "date": at.date(),
        }
        for number, (name, account, at, amount, label) in enumerate(paid)
    ]  # fmt: skip


def landed() -> list[dict[str, Any]]:
    """The rows of bronze that :func:`payments` are from, and two that are in quarantine."""
    rows = []
    for row in payments():
        is_file = row["source"] == "a/part-0"
        place = (
            {"_source_file": "a/part-0", "_source_row": row["position"]}
            if is_file
            else {"_topic": "payments", "_partition": 2, "_offset": row["position"]}
        )
        fields = {
            "dt": row["timestamp"],
            "accountId": row["account_id"],
            "amount": row["amount"],
            "alert": row["label"],
        }
        rows.append({**fields, **place, "_ingested_at": NOON + 3 * DAY, "date": row["date"]})
    broken = {"accountId": "9", "_source_file": "a/part-0", "_ingested_at": NOON + 3 * DAY}
    rows.append({**broken, "dt": NOON, "amount": -1.0, "_source_row": 20, "date": NOON.date()})
    rows.append({**broken, "dt": None, "amount": None, "_source_row": 21})
    return rows


def alert(name: str, rule: str, of: str, *evidence: str) -> dict[str, Any]:
    """An alert of a rule that a transaction completed, with its evidence."""
    by_name = {row["transaction_id"]: row for row in payments()}
    parts = [
        {"variable": "SMALL" if part != of else "LARGE", "transaction_id": part,
         "timestamp": by_name[part]["timestamp"], "amount": by_name[part]["amount"]}
        for part in (*evidence, of)
    ]  # fmt: skip
    row = by_name[of]
    return {
        "alert_id": name, "rule": rule, "account_id": row["account_id"], "transaction_id": of,
        "timestamp": row["timestamp"], "amount": row["amount"], "explanation": f"{rule} raised {name}",
        "detected_at": NOON + 3 * DAY, "kind": "pattern", "evidence": parts,
        "rule_version": 2 if rule == "large" else 1, "entity": "account", "entity_key": row["account_id"],
    }  # fmt: skip


def alerts() -> list[dict[str, Any]]:
    """Five alerts of two rules: two on the same transaction, and one of the hostile account."""
    return [
        alert("a1", "large", "t1", "t0"),
        alert("a2", HOSTILE, "t1"),
        alert("a3", "large", "t3"),
        alert("a4", "large", "t5"),
        alert("a5", "large", "t7"),
    ]


def case(name: str, *of: str) -> dict[str, Any]:
    """The case of some alerts, by their ids."""
    members = [row for row in alerts() if row["alert_id"] in of]
    paid = {row["transaction_id"]: row["amount"] for row in members}
    first, last = members[0], members[-1]
    return {
        "case_id": name, "entity": "account", "entity_key": first["account_id"], "account_id": first["account_id"],
        "opened_at": first["timestamp"], "last_alert_at": last["timestamp"], "alerts": len(members),
        "rules": sorted({row["rule"] for row in members}), "alert_ids": list(of), "transaction_ids": list(paid),
        "accounts": 1, "amount_at_risk": sum(paid.values()), "detected_at": NOON + 3 * DAY,
        "date": first["timestamp"].date(),
    }  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """Four cases; the first has two alerts of two rules."""
    return [case("a1", "a1", "a2"), case("a3", "a3"), case("a4", "a4"), case("a5", "a5")]


def queue() -> list[dict[str, Any]]:
    """Two days: two cases and one of two accounts that was drawn, then a case and one of three accounts."""

    def item(day: date, rank: int, name: str, account: str, amount: float, population: int) -> dict[str, Any]:
        is_case = name.startswith("a")
        return {
            "day": day, "rank": rank, "item_id": name, "kind": "case" if is_case else "drawn",
            "case_id": name if is_case else None, "entity": "account", "entity_key": account, "account_id": account,
            "probability": 0.5 if is_case else None, "amount_at_risk": amount, "population": population,
            "inclusion_probability": 1.0 if is_case else 1 / population, "reasons": HOSTILE, "seed": 1,
            "built_at": NOON + 3 * DAY, "priority": amount / 2 if is_case else None,
        }  # fmt: skip

    first, second = NOON.date(), (NOON + DAY).date()
    return [
        item(first, 1, "a3", "3", 900.0, 2),
        item(first, 2, "a1", "1", 600.0, 2),
        item(first, 3, "drawn-1", "2", 20.0, 2),
        item(second, 1, "a4", "2", 700.0, 3),
        item(second, 2, "drawn-2", "4", 30.0, 3),
    ]


def events() -> list[dict[str, Any]]:
    """Verdicts on all items of :func:`queue` but one: two cases are fraud, one is genuine after a correction."""
    given = [
        ("a3", "taken", None, "ann"), ("a3", "verdict", "fraud", "ann"), ("a1", "verdict", "fraud", HOSTILE),
        ("drawn-1", "verdict", "genuine", "ann"), ("a4", "verdict", "fraud", "bob"),
        ("a4", "corrected", "genuine", "bob"), ("drawn-2", "verdict", "fraud", "bob"),
    ]  # fmt: skip
    by_item = {row["item_id"]: row for row in queue()}
    return [
        {
            "number": number, "event_id": f"e{number}", "item_id": item, "kind": kind, "verdict": verdict,
            "analyst": analyst, "reason": "seen" if verdict else None, "note": HOSTILE if item == "a1" else None,
            "at": NOON + 4 * DAY + timedelta(minutes=number), "account_id": by_item[item]["account_id"],
            "entity": "account", "entity_key": by_item[item]["account_id"], "case_id": by_item[item]["case_id"],
            "day": by_item[item]["day"], "date": (NOON + 4 * DAY).date(), "transaction_ids": [],
            "expires_at": NOON + 5 * DAY if kind == "taken" else None,
        }
        for number, (item, kind, verdict, analyst) in enumerate(given, 1)
    ]  # fmt: skip


def verdicts() -> list[dict[str, Any]]:
    """What the events say of transactions, and an earlier verdict that does not count any more."""
    said = [("t5", True, 4), ("t1", True, 5), ("t3", True, 5), ("t5", False, 6), ("t2", False, 6), ("t6", True, 6)]
    return [
        {
            "transaction_id": name,
            "verdict": verdict,
            "analyst": "ann",
            "reason": HOSTILE,
            "decided_at": NOON + day * DAY,
        }
        for name, verdict, day in said
    ]


def predictions() -> list[dict[str, Any]]:
    """A score for each transaction; four are predicted fraud."""
    scores = {"t1": 0.91, "t3": 0.87, "t5": 0.55, "t7": 1.0}
    return [
        {
            **{name: row[name] for name in ("transaction_id", "account_id", "timestamp", "amount", "label", "date")},
            "hour_of_day": 12.0, "probability": scores.get(row["transaction_id"], 0.02),
            "prediction": row["transaction_id"] in scores, "model_version": "3", "scored_from": "silver",
            "reasons": [HOSTILE] if row["transaction_id"] in scores else None, "scored_at": NOON + 3 * DAY,
        }
        for row in payments()
    ]  # fmt: skip


def rule(change: int, name: str, version: int, status: str) -> dict[str, Any]:
    return {
        "change": change, "name": name, "version": version, "kind": "pattern", "status": status, "author": "ann",
        "definition": json.dumps({"name": name, "kind": "pattern"}), "reason": HOSTILE, "changed_at": NOON,
    }  # fmt: skip


def quality(day: int, judged_by: str, precision: float) -> dict[str, Any]:
    shares = {"true_prediction_rate": 0.9, "precision": 0.5, "recall": 0.75, "area_under_pr": 0.7}
    return {
        "date": (NOON + day * DAY).date(), "model_version": "3", "judged_by": judged_by, "transactions": 4, "fraud": 2,
        "precision_at_budget": precision, "recall_at_budget": 0.625, "amount_saved": 123.45, **shares,
    }  # fmt: skip


def fill(root: Path) -> Path:
    """Give an empty lake everything that the desk shows."""
    write(root, tables.BRONZE_TRANSACTIONS, landed())
    files = {"path": "/landing/a/part-0", "_source_file": "a/part-0", "size": 100, "modified_at": NOON, "rows": 10}
    write(root, tables.BRONZE_FILES, [{**files, "status": "accepted", "noted_at": NOON, "number": 1, "digest": DIGEST}])
    write(root, tables.SILVER_TRANSACTIONS, payments())
    bad = [dict(row, quarantined_at=NOON + 3 * DAY) for row in landed()[-2:]]
    bad[0]["reasons"] = ["amount_is_positive"]
    bad[1]["reasons"] = ["amount_is_known", "timestamp_is_known"]
    write(root, tables.SILVER_QUARANTINE, bad)
    write(root, tables.SILVER_ALERTS, alerts())
    write(root, tables.SILVER_SHADOW_ALERTS, [dict(alert("s1", "draft", "t2"), rule_version=1)])
    write(
        root,
        tables.SILVER_RULES,
        [
            rule(1, "large", 1, "live"), rule(2, "large", 1, "retired"), rule(2, "large", 2, "live"),
            rule(3, HOSTILE, 1, "live"), rule(4, "draft", 1, "shadow"), rule(5, "idea", 1, "draft"),
        ],
    )  # fmt: skip
    write(
        root,
        tables.SILVER_DELIVERIES,
        [
            {
                "destination": "file",
                "alert_id": name,
                "timestamp": NOON,
                "status": status,
                "attempts": 1,
                "noted_at": NOON,
            }
            for name, status in (("a1", "delivered"), ("a2", "suppressed"), ("a3", "delivered"))
        ],
    )
    write(root, tables.SILVER_VERDICTS, verdicts())
    write(root, tables.SILVER_REVIEW_EVENTS, events())
    write(root, tables.GOLD_CASES, cases())
    write(root, tables.GOLD_REVIEW_QUEUE, queue())
    write(root, tables.GOLD_FRAUD_PREDICTIONS, predictions())
    write(
        root,
        tables.GOLD_MODELS,
        [{"model_version": "3", "model": b"model", "profile": '{"budgets": [[1, 0.9]]}', "published_at": NOON}],
    )
    days = [quality(0, "flink", 0.1), quality(0, "verdict", 0.25), quality(1, "verdict", 0.375)]
    write(root, tables.GOLD_PREDICTION_QUALITY, days)
    drift = [
        {"date": (NOON + day * DAY).date(), "model_version": "3", "feature": feature, "transactions": 4, "psi": psi,
         "is_after_training": True}
        for day, feature, psi in ((0, "amount", 0.125), (1, "amount", 0.5), (1, HOSTILE, 0.0625))
    ]  # fmt: skip
    write(root, tables.GOLD_FEATURE_DRIFT, drift)
    return root


@pytest.fixture(scope="session")
def made_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of :func:`fill`, which no test changes."""
    return fill(empty_lake(tmp_path_factory.mktemp("desk") / "lake"))
