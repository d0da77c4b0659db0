"""Cases: groups the alerts of an entity, by the event time between alerts and since the first one.

A case depends on the alerts alone, not on their order of arrival. Its id is that of its earliest alert, and the id of
each of its alerts identifies it: a late alert that moves where cases begin breaks no reference.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fraudlake.gold.aggregate import Aggregate
from fraudlake.tables import GOLD_CASES, SILVER_ALERTS, SILVER_TRANSACTIONS
from fraudlake.values import MOST_AMOUNT

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = "alert_id, rule, account_id, transaction_id, timestamp, amount, detected_at, entity, entity_key"
"""The columns of ``silver_alerts``, in SQL, that :func:`cases` needs."""
_NONE = "CAST(NULL AS STRING)"
AGGREGATE = Aggregate(
    GOLD_CASES,
    ("entity", "entity_key"),
    {
        # Transactions touch no case: they are a source only so that cases share the stream of other aggregates.
        SILVER_TRANSACTIONS: (f"{_NONE} AS entity", f"{_NONE} AS entity_key"),
        SILVER_ALERTS: ("entity", "entity_key"),
    },
)
_ORDER = ["entity", "entity_key", "timestamp", "alert_id"]


def cases(alerts: pa.Table, gap: timedelta, length: timedelta) -> pa.Table:
    """Return the cases of alerts.

    Args:
        alerts: all alerts of some entities, in :data:`COLUMNS`.
        gap: the longest time between an alert of a case and the next.
        length: the longest time between the first alert of a case and the last.

    Returns:
        The columns of ``gold_cases``.
    """
    if not len(alerts):
        return GOLD_CASES.schema.empty_table()
    rows = alerts.to_pandas().sort_values(_ORDER, ignore_index=True)
    rows["case"] = _begins(rows, gap, length).cumsum() - 1
    first = rows.drop_duplicates("case")
    last = rows.drop_duplicates("case", keep="last")
    payments = rows.drop_duplicates(["case", "transaction_id"])
    amounts = payments["amount"].clip(-MOST_AMOUNT, MOST_AMOUNT)
    number = len(first)
    accounts = payments.drop_duplicates(["case", "account_id"])
    rules = rows.drop_duplicates(["case", "rule"]).sort_values(["case", "rule"])
    columns = {
        "case_id": first["alert_id"],
        "entity": first["entity"],
        "entity_key": first["entity_key"],
        "account_id": first["account_id"],
        "opened_at": first["timestamp"],
        "last_alert_at": last["timestamp"],
        "alerts": np.bincount(rows["case"], minlength=number),
        "rules": _lists(rules, "rule", number),
        "alert_ids": _lists(rows, "alert_id", number),
        "transaction_ids": _lists(payments, "transaction_id", number),
        "accounts": np.bincount(accounts["case"], minlength=number),
        "amount_at_risk": np.bincount(payments["case"], weights=amounts, minlength=number),
        "detected_at": rows.groupby("case")["detected_at"].min(),
        "date": first["timestamp"].dt.date,
    }
    arrays = [
        values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)
        for field, values in ((field, columns[field.name]) for field in GOLD_CASES.schema)
    ]
    return pa.table(arrays, schema=GOLD_CASES.schema)


def _begins(rows: pd.DataFrame, gap: timedelta, length: timedelta) -> np.ndarray:
    """Return, for alerts ordered by entity and time, whether each begins a case."""
    before = rows.shift()
    is_other = (rows["entity"] != before["entity"]) | (rows["entity_key"] != before["entity_key"])
    begins = (is_other | (rows["timestamp"] - before["timestamp"] > gap)).to_numpy(copy=True)
    times = rows["timestamp"].dt.tz_localize(None).to_numpy()
    longest = np.timedelta64(length)
    first = np.flatnonzero(begins)
    end = np.append(first[1:], len(rows))
    is_long = times[end - 1] - times[first] > longest
    for begin, after in zip(first[is_long], end[is_long], strict=True):
        # The end of a case depends on its beginning, so the cases are computed one after the other.
        while times[after - 1] - times[begin] > longest:
            begin += np.searchsorted(times[begin:after], times[begin] + longest, side="right")
            begins[begin] = True
    return begins


def _lists(rows: pd.DataFrame, column: str, number: int) -> pa.Array:
    """Return the values of a column as a list for each case; the rows are in the order of the cases."""
    ends = np.cumsum(np.bincount(rows["case"], minlength=number))
    return pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), pa.array(rows[column], pa.string()))


def changes(
    present: pa.Table, alerts: pa.Table, gap: timedelta, length: timedelta, first_day: date | None = None
) -> pa.Table:
    """Return the changes that bring ``gold_cases`` up to date with alerts.

    Args:
        present: the table's rows of some entities.
        alerts: all alerts of these entities, in :data:`COLUMNS`.
        gap: see :func:`cases`.
        length: see :func:`cases`.
        first_day: the first day whose alerts are complete. A case that opened earlier cannot be computed again, and
            stays with its alerts.

    Returns:
        The columns of ``gold_cases`` and ``gone``, which is true if the case no longer exists.
    """
    stays = [first_day is not None and day < first_day for day in present["date"].to_pylist()]
    settled = present.filter(pa.array(stays, pa.bool_()))
    settled_alerts = {alert for alerts_of_case in settled["alert_ids"].to_pylist() for alert in alerts_of_case}
    is_free = [alert not in settled_alerts for alert in alerts["alert_id"].to_pylist()]
    computed = cases(alerts.filter(pa.array(is_free, pa.bool_())), gap, length)
    before = {
        row["case_id"]: row for row in present.filter(pa.array([not stay for stay in stays], pa.bool_())).to_pylist()
    }
    after = {row["case_id"]: row for row in computed.to_pylist()}
    changed = [{**row, "gone": False} for name, row in after.items() if row != before.get(name)]
    gone = [{**row, "gone": True} for name, row in before.items() if name not in after]
    return pa.Table.from_pylist([*changed, *gone], GOLD_CASES.schema.append(pa.field("gone", pa.bool_())))
