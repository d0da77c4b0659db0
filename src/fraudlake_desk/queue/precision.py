"""Precision: estimates the share of a rule's alerts that are fraud, from verdicts and random draws.

An alert is decided if one of its payments has a verdict of fraud or genuine, and right if one of them is fraud, as in a
backtest (:mod:`fraudlake.detection.report`). Analysts choose which alerts they decide, so the share among these says
little about the others. The accounts that queues draw at random represent the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake.detection.alert_changes import APPEAR, GONE
from fraudlake.detection.alert_payments import by_verdict, payments
from fraudlake.model import intervals
from fraudlake.model.intervals import Estimate
from fraudlake.review.cases import DRAWN
from fraudlake.tables import GOLD_REVIEW_QUEUE, SILVER_ALERTS, SILVER_SHADOW_ALERTS, SILVER_VERDICTS
from fraudlake.text.sql_text import literal
from fraudlake_desk.queue import missed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from fraudlake.lake.store import Store
    from fraudlake.review.window import Window
    from fraudlake.tables import Table
    from fraudlake_desk.queue.reviewed import Reviewed

_DAY = "CAST(timestamp AS DATE)"
_COUNTED = ("alerts", "decided", "right_alerts")
CHANGES = (APPEAR, GONE)
"""The sides of a change of a rule, of :mod:`fraudlake.detection.alert_changes`."""
UNKNOWN = Estimate(None, 0.0, 1.0)


class _Weighted(NamedTuple):
    """The fields of :class:`Precision` that are estimated from draws."""

    weighted: Estimate = UNKNOWN
    of_queues: int = 0
    drawn: int = 0


@dataclass(frozen=True)
class Precision:
    """The precision of a version of a rule on some days."""

    alerts: int
    decided: int
    """Alerts with a verdict."""
    right: int
    """Decided alerts that are fraud."""
    weighted: Estimate = UNKNOWN
    """Estimated share of right alerts among all alerts of days whose queue has a decided draw."""
    of_queues: int = 0
    """Number of alerts on those days."""
    drawn: int = 0
    """Those of them that were not listed, and whose account was drawn and decided."""

    @property
    def value(self) -> float | None:
        """Share of the decided alerts that are right; None if none is decided."""
        return self.right / self.decided if self.decided else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {**asdict(self), "value": self.value, "weighted": self.weighted._asdict()}


NONE = Precision(0, 0, 0)
"""The precision of a version without alerts."""


def measure_rules(
    store: Store, reviewed: Reviewed | None, window: Window, rule: str | None = None
) -> dict[tuple[str, int], Precision]:
    """Return the precision of each live or shadow version of a rule that has alerts on some days.

    Args:
        store: the lake's tables.
        reviewed: queues and decisions; without them (None) there is no weighted precision.
        window: the days of the alerts (UTC).
        rule: the rule; None: all.
    """
    condition = window.times + (f" AND rule = {literal(rule)}" if rule is not None else "")
    counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for table in (SILVER_ALERTS, SILVER_SHADOW_ALERTS):
        for row in store.query(_counts(store, table, condition), table, SILVER_VERDICTS).to_pylist():
            counts[row["rule"], row["version"]].update({name: row[name] for name in _COUNTED})
    weighted: dict[tuple[str, int], _Weighted] = {}
    if reviewed is not None and len(reviewed.queue):
        weighted = weigh(read_queued_alerts(store, condition), reviewed.queue, reviewed.verdicts, reviewed.cases)
    nothing = _Weighted()
    return {
        key: Precision(count["alerts"], count["decided"], count["right_alerts"], *weighted.get(key, nothing))
        for key, count in counts.items()
    }


def measure_changes(changed: pa.Table, reviewed: Reviewed | None) -> dict[str, Precision]:
    """Return the precision of the alerts that appear if a rule changes, and of those that go, by ``change``.

    An alert that was never raised counts as listed if a queue listed its account on its day.

    Args:
        changed: ``change, alert_id, account_id, timestamp, is_fraud``, the rows of a ``WhatIf``.
        reviewed: queues and decisions; without them (None) there is no weighted precision.
    """
    rows = changed.select(["change", "alert_id", "account_id"]).rename_columns(["rule", "alert_id", "account_id"])
    rows = rows.append_column("version", pa.repeat(0, len(rows)))
    rows = rows.append_column("day", changed["timestamp"].cast(pa.date32()))
    rows = rows.append_column("is_fraud", changed["is_fraud"].cast(pa.int32()))
    weighted: dict[tuple[str, int], _Weighted] = {}
    if reviewed is not None and len(reviewed.queue):
        queue = reviewed.queue.select(["day", "item_id", "kind", "account_id"]).to_pylist()
        listed = {(row["day"], row["account_id"]): row["item_id"] for row in queue if row["kind"] != DRAWN}
        named = rows.select(["alert_id", "day", "account_id"]).to_pylist()
        items = {row["alert_id"]: listed.get((row["day"], row["account_id"]), "") for row in named}
        weighted = weigh(rows, reviewed.queue, reviewed.verdicts, items | reviewed.cases)
    precisions = {}
    for side in CHANGES:
        is_fraud = rows.filter(pc.equal(rows["rule"], side))["is_fraud"]
        decided = len(is_fraud) - is_fraud.null_count
        precisions[side] = Precision(
            len(is_fraud), decided, pc.sum(is_fraud).as_py() or 0, *weighted.get((side, 0), _Weighted())
        )
    return precisions


def by_rule(store: Store) -> dict[str, tuple[int, int]]:
    """Return the number of decided alerts of each rule on all days, and the number of right ones."""
    statement = _counts(store, SILVER_ALERTS, "true", by="rule")
    rows = store.query(statement, SILVER_ALERTS, SILVER_VERDICTS).to_pylist()
    return {row["rule"]: (row["decided"], row["right_alerts"]) for row in rows if row["decided"]}


def _counts(store: Store, table: Table, condition: str, by: str = "rule, version") -> str:
    return (
        f"SELECT {by}, count(*) AS alerts, count(is_fraud) AS decided, sum(coalesce(is_fraud, 0)) AS right_alerts "
        f"FROM ({_with_verdicts(store, table, condition)}) alerts GROUP BY {by}"
    )


def read_queued_alerts(store: Store, condition: str) -> pa.Table:
    """Return the alerts of live and shadow rules, on days with a queue, that fulfil a condition in SQL.

    Their columns are ``rule, version, alert_id, account_id, day`` (the date of ``timestamp``), and ``is_fraud``, which
    is 1 or 0, or null without a verdict.
    """
    of_days = f"{condition} AND {_DAY} IN (SELECT DISTINCT day FROM {GOLD_REVIEW_QUEUE.name})"
    return pa.concat_tables(
        store.query(_with_verdicts(store, table, of_days), table, SILVER_VERDICTS, GOLD_REVIEW_QUEUE)
        for table in (SILVER_ALERTS, SILVER_SHADOW_ALERTS)
    )


def _with_verdicts(store: Store, table: Table, condition: str) -> str:
    """Return a query of alerts with their latest verdicts: see :func:`read_queued_alerts`."""
    decided = (
        f"SELECT p.alert_id, max(v.is_fraud) AS is_fraud FROM ({payments(table, condition)}) p JOIN "
        f"({by_verdict()}) v ON p.transaction_id = v.transaction_id GROUP BY p.alert_id"
    )
    chosen = (
        f"SELECT rule, rule_version AS version, alert_id, account_id, {_DAY} AS day FROM {table.name} WHERE {condition}"
    )
    return f"SELECT a.*, d.is_fraud FROM ({chosen}) a LEFT JOIN ({decided}) d ON a.alert_id = d.alert_id"


def weigh(
    alerts: pa.Table, queue: pa.Table, verdicts: Mapping[str, str], cases: Mapping[str, str]
) -> dict[tuple[str, int], _Weighted]:
    """Return the precision of each version of a rule as estimated from draws.

    Accounts are drawn, not single alerts, so a drawn account represents others with all of its alerts.

    Args:
        alerts: rows of :func:`read_queued_alerts`.
        queue: rows of ``gold_review_queue``, :data:`missed.QUEUE_COLUMNS`.
        verdicts: the latest verdict on each decided item, by its id.
        cases: the id of the case of each alert.
    """
    items = missed.with_weights(queue, verdicts)
    is_drawn = items["kind"] == DRAWN
    is_decided = items["verdict"].isin((missed.FRAUD, missed.GENUINE))
    drawn = items[is_drawn & is_decided].set_index(["day", "account_id"])["weight"]
    rows: pd.DataFrame = alerts.to_pandas()
    rows = rows[rows["day"].isin(items["day"])]
    rows["is_listed"] = rows["alert_id"].map(cases).isin(items["item_id"][~is_drawn])
    # A listed account is never drawn, so no draw represents its other alerts.
    rows["is_listed"] = rows.groupby(["day", "account_id"])["is_listed"].transform("any")
    rows = rows.join(drawn, on=["day", "account_id"])
    by_version = rows.groupby(["rule", "version"])
    return {cast("tuple[str, int]", key): _weighted(of_version) for key, of_version in by_version}


def _weighted(rows: pd.DataFrame) -> _Weighted:
    is_right = rows["is_fraud"] == 1
    is_wrong = rows["is_fraud"] == 0
    is_listed = rows["is_listed"]
    listed = int((is_listed & (is_right | is_wrong)).sum())
    right = int((is_listed & is_right).sum())
    others = rows[~is_listed]
    drawn = others[others["weight"].notna() & others["is_fraud"].notna()]
    rest = _rest(others, drawn)
    whole = listed + len(others)
    value, low, high = (None if limit is None or not whole else (right + limit) / whole for limit in rest)
    weighted = Estimate(value, 0.0 if low is None else low, 1.0 if high is None else high)
    return _Weighted(weighted, len(rows), len(drawn))


def _rest(others: pd.DataFrame, drawn: pd.DataFrame) -> Estimate:
    """Estimate the number of right alerts among those that were not listed."""
    if drawn.empty:
        return Estimate(None if len(others) else 0.0, 0.0, float(len(others)))
    by_account = drawn.groupby(["day", "account_id"]).agg(
        weight=("weight", "first"), right=("is_fraud", "sum"), alerts=("is_fraud", "size")
    )
    hits = (by_account["weight"] * by_account["right"]).to_numpy()
    wrong = by_account["alerts"] - by_account["right"]
    misses = (by_account["weight"] * wrong).to_numpy()
    # The number of unlisted alerts is known, so the weights are scaled to add up to it.
    scale = len(others) / (hits.sum() + misses.sum())
    largest = scale * float(by_account["weight"].max()) * int(others.groupby(["day", "account_id"]).size().max())
    low, high = intervals.estimate_sum(hits * scale, largest)
    fewest, most = intervals.estimate_sum(misses * scale, largest)
    high = min(high, len(others) - fewest, len(others) - int(wrong.sum()))
    low = max(low, len(others) - most, int(by_account["right"].sum()))
    return Estimate(float(hits.sum()) * scale, min(low, high), high)
