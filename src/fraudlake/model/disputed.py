"""Disputed payments: finds the transactions that rows of a verdict file are about, and existing verdicts on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.settings.disputes import IDS, PAYMENT, REFERENCE

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings.disputes import Format

_SILVER = tables.SILVER_TRANSACTIONS.name
_FOUND = pa.schema([("nth", pa.int64()), ("transaction_id", pa.string()), ("date", pa.date32()), ("alike", pa.int64())])
_LACKS = "g.transaction_id IS NULL AND g.alert_id IS NULL AND g.case_id IS NULL"
_NAMED = {
    "transaction_id": "SELECT nth, transaction_id FROM given WHERE transaction_id IS NOT NULL",
    "alert_id": f"""
        SELECT g.nth, a.transaction_id FROM given g
        JOIN (SELECT alert_id, transaction_id FROM {tables.SILVER_ALERTS.name}
            UNION SELECT alert_id, transaction_id FROM {tables.SILVER_SHADOW_ALERTS.name}) a
        ON g.alert_id = a.alert_id WHERE g.transaction_id IS NULL""",
    "case_id": f"""
        SELECT g.nth, c.transaction_id FROM given g
        JOIN (SELECT case_id, explode(transaction_ids) AS transaction_id
            FROM (SELECT explode(alert_ids) AS case_id, transaction_ids FROM {tables.GOLD_CASES.name}) named) c
        ON g.case_id = c.case_id WHERE g.transaction_id IS NULL AND g.alert_id IS NULL""",
}
"""Queries for the transactions that rows name by each kind of id. A verdict on an alert applies to the transaction that
completed it. A verdict on a case, named by the id of any of its alerts, applies to each of its transactions."""
_ALIKE = {
    REFERENCE: "CAST(s.`{reference}` AS STRING) = g.reference",
    "account_id": "s.account_id = g.account_id AND round(s.amount * 100) = round(g.amount * 100) "
    "AND s.timestamp >= g.earliest AND s.timestamp <= g.latest",
}
"""Conditions for the transactions that match a row without an id; amounts must be equal to the cent."""


def payments(lake: Lake, rows: pa.Table, of: Format) -> pa.Table:
    """Find the transactions that rows are about.

    Args:
        lake: the lake.
        rows: the rows of :class:`fraudlake.model.verdict_file.VerdictFile`.
        of: their format.

    Returns:
        ``nth`` (the index of the row), ``transaction_id``, ``date`` and ``alike``: the number of transactions that
        match the row, 1 if it names them by an id. If several match, one of them is returned.
    """
    has = {name for name in (*IDS, REFERENCE, PAYMENT[0]) if rows[name].null_count < len(rows)}
    named = " UNION ALL ".join(statement for name, statement in _NAMED.items() if name in has)
    parts = [_by_id(named)] if named else []
    parts += [_by_likeness(name, of) for name in _ALIKE if name in has]
    if not parts:
        return _FOUND.empty_table()
    read = (tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS, tables.SILVER_SHADOW_ALERTS, tables.GOLD_CASES)
    return lake.store.query(" UNION ALL ".join(parts), *read, given=_with_ranges(rows, of)).cast(_FOUND)


def verdicts_on(lake: Lake, transactions: pa.Table) -> pa.Table:
    """Return ``transaction_id, decided_at, verdict, analyst`` of the verdicts on transactions (``transaction_id``)."""
    table = tables.SILVER_VERDICTS
    statement = (
        "SELECT DISTINCT v.transaction_id, v.decided_at, v.verdict, v.analyst "
        f"FROM {table.name} v JOIN given g ON v.transaction_id = g.transaction_id"
    )
    verdicts = lake.store.query(statement, table, given=transactions)
    return verdicts.cast(pa.schema([table.schema.field(name) for name in verdicts.column_names]))


def _with_ranges(rows: pa.Table, of: Format) -> pa.Table:
    ranges = rows.select([*IDS, REFERENCE, "account_id", "amount"])
    ranges = ranges.append_column("nth", pa.array(np.arange(len(rows))))
    tolerance = pa.scalar(of.tolerance, pa.duration("us"))
    ranges = ranges.append_column("earliest", pc.subtract(rows["timestamp"], tolerance))
    return ranges.append_column("latest", pc.add(rows["timestamp"], tolerance))


def _by_id(named: str) -> str:
    return (
        "SELECT DISTINCT n.nth, s.transaction_id, s.date, CAST(1 AS BIGINT) AS alike "
        f"FROM ({named}) n JOIN {_SILVER} s ON n.transaction_id = s.transaction_id"
    )


def _by_likeness(name: str, of: Format) -> str:
    others = "" if name == REFERENCE else f" AND g.{REFERENCE} IS NULL"
    return (
        "SELECT g.nth, min(s.transaction_id) AS transaction_id, min(s.date) AS date, "
        f"count(DISTINCT s.transaction_id) AS alike FROM given g JOIN {_SILVER} s "
        f"ON {_ALIKE[name].format(reference=of.reference)} WHERE {_LACKS}{others} GROUP BY g.nth"
    )
