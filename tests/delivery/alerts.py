"""Alerts as the detector writes them, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from fraudlake import tables

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


def alert(
    number: int,
    account: str = "1",
    seconds: float | None = None,
    detected: float | None = None,
    terminal: str | None = None,
) -> dict[str, Any]:
    """An alert; its event time and its detection are ``seconds`` after noon, by default ``number`` seconds.

    Its rule is by account, or by terminal if there is one.
    """
    time = NOON + timedelta(seconds=number if seconds is None else seconds)
    return {
        "alert_id": f"{number:032x}",
        "rule": "small_then_large",
        "account_id": account,
        "transaction_id": f"large-{number}",
        "timestamp": time,
        "amount": 900.5,
        "explanation": f"Konto {account} „zahlte“ 'klein', dann groß\n{number}",
        "detected_at": time if detected is None else NOON + timedelta(seconds=detected),
        "kind": "small_then_large",
        "evidence": [
            {
                "variable": "SMALL",
                "transaction_id": f"small-{number}",
                "timestamp": time - timedelta(seconds=1.25),
                "amount": 0.1,
            },
            {"variable": "LARGE", "transaction_id": f"large-{number}", "timestamp": time, "amount": 900.5},
        ],
        "measures": [("seconds_between", "1.25")],
        "rule_version": 1,
        "entity": "terminal" if terminal else "account",
        "entity_key": terminal or account,
    }


def raise_(lake: Any, *alerts: dict[str, Any]) -> None:
    """Append alerts to ``silver_alerts``, in one commit."""
    lake.writer(tables.SILVER_ALERTS).write(pa.Table.from_pylist(list(alerts), tables.SILVER_ALERTS.schema), "append")
