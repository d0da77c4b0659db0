"""Truth: what every table must hold, computed with pandas and the oracle from the landed files, and what differs.

Nothing of the package is used: tables are read by delta-rs.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet as pq
from confluent_kafka import Message
from deltalake import DeltaTable

from tests import oracle
from tests.chaos import entities
from tests.chaos.landing import DEPARTING


class Limits(NamedTuple):
    """Parameters of :func:`oracle.alerts`."""

    small_below: float
    large_above: float
    within: int


WIDER = Limits(25.0, 490.0, 10 * oracle.MINUTE)
"""Limits of the rule that is in the shadow from time to time."""
LIKELY = 0.1
"""The probability from which the rule ``likely`` alerts."""
DELIVERED = "delivered"
"""The folder of the lake with a folder for each destination, of files of JSON lines."""
SHOWN = 3
"""How many rows a difference shows."""
Rows = Iterable[tuple[Any, ...]]
Alerts = list[tuple[oracle.Row, oracle.Row]]


def differences(
    lake: Path,
    messages: Sequence[Message] = (),
    landing: Path | None = None,
    case_gap: timedelta = timedelta(days=1),
    case_length: timedelta = timedelta(days=7),
) -> list[str]:
    """Compare every table, and what was delivered, with the truth.

    Args:
        lake: folder of the lake.
        messages: all messages of its topic.
        landing: its landing folder, if it is not that of a lake on this machine.
        case_gap: the longest time between an alert of a case and the next one.
        case_length: the longest time between the first alert of a case and the last one.

    Returns:
        A sentence for each that differs, none where all are right.
    """
    compared = _expected_and_stored(lake, messages, landing or lake / "landing", case_gap, case_length)
    sentences = (_difference(table, *rows) for table, rows in compared.items())
    return [sentence for sentence in sentences if sentence]


def _expected_and_stored(
    lake: Path, messages: Sequence[Message], landing: Path, case_gap: timedelta, case_length: timedelta
) -> dict[str, tuple[Rows, Rows]]:
    """Return, by table, the rows that it must hold and those that it holds."""
    files, unreadable = _landed(landing)
    landed = pd.concat([files, *_produced(messages)], ignore_index=True)
    landed["reason"] = _reasons(landed)
    valid, invalid = landed[landed.reason == ""], landed[landed.reason != ""]
    rows = [oracle.Row(*row) for row in _rows(valid, "accountId", "time", "amount", "source", "position")]
    merchants = valid.merchantId.astype(object).where(valid.merchantId.notna(), None)
    paid = [entities.Paid(*row) for row in zip(rows, merchants, valid.alert.astype(bool), strict=True)]
    alerts, by_entity = oracle.alerts(rows), list(entities.alerts(paid))
    stored = partial(_stored, lake)
    silver, quarantine = stored("silver_transactions"), _with_place(stored("silver_quarantine"))
    silver["time"] = _micros(silver.timestamp)
    quarantine["reason"] = quarantine.reasons.str[0]
    latest = stored("bronze_files").sort_values("noted_at").groupby("_source_file", as_index=False).last()
    outcomes = [(name, "rejected") for name in unreadable] + [(name, "accepted") for name in files.source.unique()]
    places = dict(zip(silver.transaction_id, _rows(silver, "source", "position"), strict=True))
    predictions = stored("gold_fraud_predictions")
    scored_high = set(predictions[predictions.probability >= LIKELY].transaction_id)
    by_place = {(row.source, row.position): row for row in rows}
    likely = [by_place[places[name]] for name in scored_high & places.keys()]
    completing = [*(large for _, large in alerts), *(alert.evidence[-1] for alert in by_entity), *likely]

    def raised(table: str) -> list[tuple[Any, ...]]:
        raised = stored(table)
        pairs = raised[(raised.entity == "account") & (raised.kind == "small_then_large")]
        return [tuple(places.get(row["transaction_id"]) for row in evidence) for evidence in pairs.evidence]

    def raised_by_entity() -> Rows:
        raised = stored("silver_alerts")
        by_entity = raised[raised.entity != "account"]
        for rule, kind, entity, key, evidence in _rows(by_entity, "rule", "kind", "entity", "entity_key", "evidence"):
            values = key if entity == "merchant" else tuple(json.loads(key).values())
            last = evidence[-1:] if kind == "threshold" else evidence
            yield rule, values, tuple(places.get(row["transaction_id"]) for row in last)

    def raised_by_score() -> Rows:
        raised = stored("silver_alerts")
        for account, name in _rows(raised[raised.kind == "model"], "account_id", "transaction_id"):
            yield account, *places.get(name, (name, None))

    # When the rule was in the shadow depends on the kills: what it raised then must be right, and there once.
    shadow_alerts = raised("silver_shadow_alerts")
    right_shadow_alerts = set(_positions(oracle.alerts(rows, *WIDER))) & set(shadow_alerts)
    comparisons: dict[str, tuple[Rows, Rows]] = {
        "bronze_files": (outcomes, _rows(latest, "_source_file", "status")),
        "bronze_transactions": (
            _rows(landed, "source", "position"),
            _rows(_with_place(stored("bronze_transactions")), "source", "position"),
        ),
        "silver_transactions": (
            _rows(valid, "source", "position", "accountId", "time", "amount", "alert"),
            _rows(silver, "source", "position", "account_id", "time", "amount", "label"),
        ),
        "silver_quarantine": (
            _rows(invalid, "source", "position", "reason"),
            _rows(quarantine, "source", "position", "reason"),
        ),
        "silver_alerts": (_positions(alerts), raised("silver_alerts")),
        "silver_alerts by entity": (
            ((rule, key, tuple((row.source, row.position) for row in rows)) for rule, key, rows in by_entity),
            raised_by_entity(),
        ),
        "silver_alerts of scores": (
            ((row.account_id, row.source, row.position) for row in likely),
            raised_by_score(),
        ),
        "silver_shadow_alerts": (right_shadow_alerts, shadow_alerts),
        "gold_account_daily": (_account_days(valid, completing), _stored_account_days(stored("gold_account_daily"))),
        "gold_account_tiles": (
            oracle.tiles(rows, completing),
            _stored_tiles(stored("gold_account_tiles")),
        ),
        "gold_cases": (_cases(stored("silver_alerts"), case_gap, case_length), _stored_cases(stored("gold_cases"))),
        "gold_detector_agreement": (
            _agreement(valid, alerts),
            _rows(_with_day(stored("gold_detector_agreement")), "day", "both", "only_flink", "only_spark"),
        ),
    }
    if len(stored("gold_models")):
        comparisons["gold_fraud_predictions"] = (
            _rows(silver, "transaction_id"),
            _rows(predictions, "transaction_id"),
        )
        comparisons["features by entity"] = (entities.features(paid), _stored_features(predictions, places))
    alert_ids = list(_rows(stored("silver_alerts"), "alert_id", "transaction_id"))
    deliveries = stored("silver_deliveries")
    for folder in (lake / DELIVERED).glob("*"):
        # An alert may be delivered again, as an equal event. What a webhook got is not forgotten.
        events = map(json.loads, {line for file in folder.glob("*.jsonl") for line in file.open()})
        ours = (event for event in events if folder.name != "webhook" or event["data"]["account_id"] != DEPARTING)
        sent = [(event["id"], event["data"]["transaction_id"]) for event in ours]
        comparisons[f"delivered to {folder.name}"] = (alert_ids, sent)
        noted = _rows(deliveries[deliveries.destination == folder.name], "alert_id", "status")
        comparisons[f"silver_deliveries, {folder.name}"] = ([(id_, "delivered") for id_, _ in alert_ids], noted)
    return comparisons


def _stored(lake: Path, table: str) -> pd.DataFrame:
    return DeltaTable(lake / "tables" / table).to_pandas()


def _positions(alerts: Alerts) -> Iterator[tuple[Any, ...]]:
    return (((small.source, small.position), (large.source, large.position)) for small, large in alerts)


def _landed(folder: Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of all readable files, in the order of landing, and the names of the others."""
    frames, unreadable = [], []
    for path in sorted(folder.glob("part-*"), key=lambda path: path.stat().st_mtime):
        try:
            rows = pq.read_table(path).to_pandas()
        except (OSError, ValueError):
            unreadable.append(path.name)
            continue
        frames.append(rows.assign(source=path.name, position=range(len(rows)), time=_micros(rows["dt"])))
    return pd.concat(frames, ignore_index=True), unreadable


def _produced(messages: Sequence[Message]) -> Iterator[pd.DataFrame]:
    """Return the rows of all messages; those of one that cannot be read are null."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        try:
            fields = json.loads(message.value() or b"")
        except ValueError:
            fields = {"dt": 0, "is_readable": False}
        place = {"source": _partition(message.topic(), message.partition()), "position": message.offset()}
        rows.append({**fields, **place, "time": 1000 * fields["dt"]})
    if rows:
        yield pd.DataFrame(rows)


def _partition(topic: str | None, partition: int | None) -> str:
    return f"kafka:{topic}/{partition:010}"


def _with_place(bronze: pd.DataFrame) -> pd.DataFrame:
    """Add source and position of the rows of files and messages."""
    sources = [
        _partition(topic, int(partition)) if file is None else file
        for file, topic, partition in _rows(bronze, "_source_file", "_topic", "_partition")
    ]
    return bronze.assign(source=sources, position=bronze._source_row.fillna(bronze._offset).astype("int64"))


def _reasons(landed: pd.DataFrame) -> pd.Series:
    """Return the rule that each row breaks; an empty text for a valid row."""
    reasons = pd.Series("", index=landed.index)
    reasons[landed.transaction_id.notna() & landed.transaction_id.duplicated()] = "transaction_is_new"
    reasons[landed.amount <= 0] = "amount_is_positive"
    reasons[landed.amount.isna()] = "amount_is_known"
    reasons[landed.accountId.fillna("").str.strip() == ""] = "account_is_named"
    reasons[landed.accountId == DEPARTING] = "forgotten"
    if "is_readable" in landed:
        reasons[landed.is_readable.notna()] = "message_is_readable"
    return reasons


def _micros(times: pd.Series) -> pd.Series:
    return times.astype("datetime64[us]" if times.dt.tz is None else "datetime64[us, UTC]").astype("int64")


def _rows(frame: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(frame[column].tolist() for column in columns), strict=True)


def _with_day(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(day=frame.date.astype(str))


def _day(time: int) -> str:
    return str(pd.Timestamp(time, unit="us").date())


def _account_days(valid: pd.DataFrame, completing: list[oracle.Row]) -> Rows:
    alerted = Counter((row.account_id, _day(row.time)) for row in completing)
    for key, own in valid.groupby(["accountId", valid.time.map(_day)]):
        amounts = own.amount.tolist()
        small, large = sum(amount < 1 for amount in amounts), sum(amount > 500 for amount in amounts)
        yield *key, len(own), round(100 * sum(amounts)), max(amounts), small, large, alerted[key]


def _stored_account_days(daily: pd.DataFrame) -> Rows:
    daily = _with_day(daily).assign(cents=(100 * daily.amount_sum).round().astype(int))
    figures = ("transactions", "cents", "amount_max", "small_transactions", "large_transactions", "alerts")
    return _rows(daily, "account_id", "day", *figures)


def _stored_tiles(tiles: pd.DataFrame) -> Rows:
    times = {name: _micros(tiles[name]) for name in ("tile_start", "first_transaction", "last_transaction")}
    tiles = _with_day(tiles).assign(cents=(100 * tiles.amount_sum).round().astype(int), **times)
    keys, figures = ("account_id", "tile_start", "day"), ("transactions", "cents", "amount_max", "alerts")
    return _rows(tiles, *keys, *figures, "first_transaction", "last_transaction")


def _stored_features(predictions: pd.DataFrame, places: dict[str, tuple[Any, ...]]) -> Rows:
    names = [str(feature["name"]) for feature in entities.FEATURES]
    for id_, *values in _rows(predictions, "transaction_id", *names):
        yield *places.get(id_, (id_, None)), *(None if value != value else value for value in values)


def _cases(alerts: pd.DataFrame, gap: timedelta, length: timedelta) -> Rows:
    """Put alerts into cases, one after the other."""
    by_key: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
    for alert in alerts.sort_values(["timestamp", "alert_id"]).itertuples():
        cases = by_key[alert.entity, alert.entity_key]
        last = cases[-1] if cases else None
        if not last or alert.timestamp - last[-1].timestamp > gap or alert.timestamp - last[0].timestamp > length:
            cases.append([])
        cases[-1].append(alert)
    for key, cases in by_key.items():
        for case in cases:
            paid = {alert.transaction_id: alert.amount for alert in case}
            first, last = case[0], case[-1]
            yield (
                *(first.alert_id, *key, first.account_id, first.timestamp, last.timestamp, len(case)),
                *(tuple(sorted({alert.rule for alert in case})), tuple(alert.alert_id for alert in case), tuple(paid)),
                *(len({alert.account_id for alert in case}), round(100 * sum(paid.values()))),
                *(min(alert.detected_at for alert in case), str(first.timestamp.date())),
            )


def _stored_cases(cases: pd.DataFrame) -> Rows:
    cases = _with_day(cases).assign(cents=(100 * cases.amount_at_risk).round().astype(int))
    cases = cases.assign(**{name: cases[name].map(tuple) for name in ("rules", "alert_ids", "transaction_ids")})
    keys = ("case_id", "entity", "entity_key", "account_id", "opened_at", "last_alert_at", "alerts")
    return _rows(cases, *keys, "rules", "alert_ids", "transaction_ids", "accounts", "cents", "detected_at", "day")


def _agreement(valid: pd.DataFrame, alerts: Alerts) -> Rows:
    ours = {(large.source, large.position) for _, large in alerts}
    for day, own in valid.groupby(valid.time.map(_day)):
        verdicts = [
            (bool(flink), (file, row) in ours) for file, row, flink in _rows(own, "source", "position", "alert")
        ]
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
