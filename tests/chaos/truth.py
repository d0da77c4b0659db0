"""Truth: what every table must hold, computed with pandas and the oracle from the landed files, and what differs.

Nothing of the package is used: tables are read by delta-rs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests import oracle

SHOWN = 3
"""How many rows a difference shows."""
Rows = Iterable[tuple[Any, ...]]
Alerts = list[tuple[oracle.Row, oracle.Row]]


def differences(lake: Path) -> list[str]:
    """Compare every table with the truth; a sentence for each that differs, none where all are right."""
    sentences = (_difference(table, *rows) for table, rows in _expected_and_stored(lake).items())
    return [sentence for sentence in sentences if sentence]


def _expected_and_stored(lake: Path) -> dict[str, tuple[Rows, Rows]]:
    """Return, by table, the rows that it must hold and those that it holds."""
    landed, unreadable = _landed(lake / "landing")
    landed["reason"] = _reasons(landed)
    valid, invalid = landed[landed.reason == ""], landed[landed.reason != ""]
    rows = [oracle.Row(*row) for row in _rows(valid, "accountId", "time", "amount", "file", "position")]
    alerts = oracle.alerts(rows)

    def stored(table: str) -> pd.DataFrame:
        return DeltaTable(lake / "tables" / table).to_pandas()

    silver, quarantine, windows = (
        stored("silver_transactions"),
        stored("silver_quarantine"),
        stored("gold_alert_windows"),
    )
    silver["time"] = _micros(silver.timestamp)
    quarantine["reason"] = quarantine.reasons.str[0]
    windows["start"], windows["end"] = _micros(windows.window_start), _micros(windows.window_end)
    latest = stored("bronze_files").sort_values("noted_at").groupby("_source_file", as_index=False).last()
    outcomes = [(name, "rejected") for name in unreadable] + [(name, "accepted") for name in landed.file.unique()]
    places = dict(zip(silver.transaction_id, _rows(silver, "source", "position"), strict=True))
    raised = _rows(stored("silver_alerts"), "small_transaction_id", "transaction_id")
    comparisons: dict[str, tuple[Rows, Rows]] = {
        "bronze_files": (outcomes, _rows(latest, "_source_file", "status")),
        "bronze_transactions": (
            _rows(landed, "file", "position"),
            _rows(stored("bronze_transactions"), "_source_file", "_source_row"),
        ),
        "silver_transactions": (
            _rows(valid, "file", "position", "accountId", "time", "amount", "alert"),
            _rows(silver, "source", "position", "account_id", "time", "amount", "label"),
        ),
        "silver_quarantine": (
            _rows(invalid, "file", "position", "reason"),
            _rows(quarantine, "_source_file", "_source_row", "reason"),
        ),
        "silver_alerts": (
            (((small.source, small.position), (large.source, large.position)) for small, large in alerts),
            ((places.get(small), places.get(large)) for small, large in raised),
        ),
        "gold_account_daily": (_account_days(valid, alerts), _stored_account_days(stored("gold_account_daily"))),
        "gold_alert_windows": (oracle.windows(rows, [large for _, large in alerts]), _stored_windows(windows)),
        "gold_detector_agreement": (
            _agreement(valid, alerts),
            _rows(_with_day(stored("gold_detector_agreement")), "day", "both", "only_flink", "only_spark"),
        ),
    }
    if len(stored("gold_models")):
        scored = _rows(stored("gold_fraud_predictions"), "transaction_id")
        comparisons["gold_fraud_predictions"] = (_rows(silver, "transaction_id"), scored)
    return comparisons


def _landed(folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of all readable files, in the order of landing, and the names of the others."""
    frames, unreadable = [], []
    for path in sorted(folder.glob("part-*"), key=lambda path: path.stat().st_mtime):
        try:
            rows = pq.read_table(path).to_pandas()
        except (OSError, ValueError):
            unreadable.append(path.name)
            continue
        frames.append(rows.assign(file=path.name, position=range(len(rows)), time=_micros(rows["dt"])))
    return pd.concat(frames, ignore_index=True), unreadable


def _reasons(landed: pd.DataFrame) -> pd.Series:
    """Return the rule that each row breaks; an empty text for a valid row."""
    reasons = pd.Series("", index=landed.index)
    reasons[landed.transaction_id.notna() & landed.transaction_id.duplicated()] = "transaction_is_new"
    reasons[landed.amount <= 0] = "amount_is_positive"
    reasons[landed.amount.isna()] = "amount_is_known"
    reasons[landed.accountId.fillna("").str.strip() == ""] = "account_is_named"
    return reasons


def _micros(times: pd.Series) -> pd.Series:
    return times.astype("datetime64[us]" if times.dt.tz is None else "datetime64[us, UTC]").astype("int64")


def _rows(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(frame[column].tolist() for column in columns), strict=True)


def _with_day(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(day=frame.date.astype(str))


def _day(time: int) -> str:
    return str(pd.Timestamp(time, unit="us").date())


def _account_days(valid: pd.DataFrame, alerts: Alerts) -> Rows:
    alerted = Counter((large.account_id, _day(large.time)) for _, large in alerts)
    for key, own in valid.groupby(["accountId", valid.time.map(_day)]):
        amounts = own.amount.tolist()
        small, large = sum(amount < 1 for amount in amounts), sum(amount > 500 for amount in amounts)
        yield *key, len(own), round(100 * sum(amounts)), max(amounts), small, large, alerted[key]


def _stored_account_days(daily: pd.DataFrame) -> Rows:
    daily = _with_day(daily).assign(cents=(100 * daily.amount_sum).round().astype(int))
    figures = ("transactions", "cents", "amount_max", "small_transactions", "large_transactions", "alerts")
    return _rows(daily, "account_id", "day", *figures)


def _stored_windows(windows: pd.DataFrame) -> Rows:
    cents, number = (100 * windows.amount_sum).round().astype(int), windows.number.astype("Int64").astype(object)
    windows = windows.assign(cents=cents, number=number.where(number.notna(), None))
    keys = ("kind", "account_id", "number", "start", "end")
    return _rows(windows, *keys, "transactions", "cents", "amount_max", "alerts", "state")


def _agreement(valid: pd.DataFrame, alerts: Alerts) -> Rows:
    ours = {(large.source, large.position) for _, large in alerts}
    for day, own in valid.groupby(valid.time.map(_day)):
        verdicts = [(bool(flink), (file, row) in ours) for file, row, flink in _rows(own, "file", "position", "alert")]
        yield day, verdicts.count((True, True)), verdicts.count((True, False)), verdicts.count((False, True))


def _difference(table: str, expected: Rows, stored: Rows) -> str | None:
    """Compare as multisets, so that a doubled row differs."""
    wanted, present = Counter(expected), Counter(stored)
    parts = [
        f"{sum(rows.values())} rows {what}, such as {sorted(map(str, rows))[:SHOWN]}"
        for what, rows in (("are missing", wanted - present), ("are too many", present - wanted))
        if rows
    ]
    return f"{table}: {'; '.join(parts)}" if parts else None
