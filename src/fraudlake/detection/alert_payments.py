"""Alert payments: queries for the payments of alerts, and for what the truth says of payments.

The queries are in the SQL that every :class:`fraudlake.lake.store.Store` understands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fraudlake.tables import SILVER_TRANSACTIONS, SILVER_VERDICTS

if TYPE_CHECKING:
    from fraudlake.tables import Table


def payments(table: Table, condition: str) -> str:
    """Return a query for the payments of alerts: ``alert_id, rule, transaction_id, amount``.

    Args:
        table: a table of alerts.
        condition: selects its alerts, in SQL.
    """
    last = f"SELECT alert_id, rule, transaction_id, amount FROM {table.name} WHERE {condition}"
    evidence = (
        "SELECT alert_id, rule, transaction_id AS last_id, explode(evidence) AS part "
        f"FROM {table.name} WHERE {condition}"
    )
    others = (
        "SELECT alert_id, rule, part['transaction_id'] AS transaction_id, part['amount'] AS amount "
        f"FROM ({evidence}) parts WHERE part['transaction_id'] <> last_id"
    )
    return f"{last} UNION ALL {others}"


def by_verdict() -> str:
    """Return a query for the payments with a verdict: ``transaction_id``, and ``is_fraud``, which is 1 or 0."""
    nth = "row_number() OVER (PARTITION BY transaction_id ORDER BY decided_at DESC, verdict DESC NULLS LAST) AS nth"
    numbered = f"SELECT transaction_id, verdict, {nth} FROM {SILVER_VERDICTS.name}"
    is_fraud = "CASE WHEN verdict THEN 1 ELSE 0 END AS is_fraud"
    return f"SELECT transaction_id, {is_fraud} FROM ({numbered}) numbered WHERE nth = 1 AND verdict IS NOT NULL"


def by_label() -> str:
    """Return a query for the payments with Flink's label, in the columns of :func:`by_verdict`."""
    is_fraud = "CASE WHEN label THEN 1 ELSE 0 END AS is_fraud"
    return f"SELECT transaction_id, {is_fraud} FROM {SILVER_TRANSACTIONS.name} WHERE label IS NOT NULL"
