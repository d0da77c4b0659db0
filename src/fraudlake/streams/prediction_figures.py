"""Prediction figures: computes the model's quality and drift, by day and version, from predictions and verdicts."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fraudlake import tables
from fraudlake.lake import threads
from fraudlake.model import drift, prediction_quality, published
from fraudlake.model.metrics import Budget
from fraudlake.silver import verdicts
from fraudlake.streams import refresh
from fraudlake.streams.stream import Stream
from fraudlake.text import sql_text
from fraudlake.text.sql_text import one_of
from fraudlake.times.days import divided

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake
    from fraudlake.model.drift import Profile

_DAYS = list(prediction_quality.DAYS)
_READ = ("transaction_id", "account_id", "timestamp", "amount", *_DAYS, "label", "prediction", "probability")
_FEW = 1_000_000
_AT_ONCE = 250_000
"""Most predictions of a day that this process reads (Spark reads a larger day), and of several days together."""
Group = tuple["date", str]
"""A day (UTC) and a model version."""


def stream(lake: Lake) -> Stream:
    """``gold_fraud_predictions`` and ``silver_verdicts`` → ``gold_prediction_quality`` and ``gold_feature_drift``."""

    def rows() -> DataFrame:
        predicted = lake.read_stream(tables.GOLD_FRAUD_PREDICTIONS).select(*_DAYS)
        decided = lake.read_stream(tables.SILVER_VERDICTS).selectExpr("date", "CAST(NULL AS STRING) AS model_version")
        return predicted.unionByName(decided)

    def write(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        touched = [tuple(row) for row in batch.distinct().collect()]
        groups = {(day, version) for day, version in touched if version is not None}
        decided_on = [day for day, version in touched if version is None]
        if decided_on:
            scored = lake.store.query(
                f"SELECT DISTINCT {', '.join(_DAYS)} FROM {tables.GOLD_FRAUD_PREDICTIONS.name} {_on(decided_on)}",
                tables.GOLD_FRAUD_PREDICTIONS,
            )
            groups |= {(row["date"], row["model_version"]) for row in scored.to_pylist()}
        # Write the figures of the batch's own days last, so that a repeated batch finds the same older days.
        for part in (_matured(lake, groups), groups):
            if part:
                versions = sorted({version for _, version in part})
                measure(lake, part, published.profiles(lake, versions))

    return Stream(
        "prediction_quality",
        rows,
        write,
        reads=(tables.GOLD_FRAUD_PREDICTIONS, tables.SILVER_VERDICTS),
        persist=False,
    )


def _matured(lake: Lake, groups: Collection[Group]) -> set[Group]:
    """Return older groups whose transactions have become genuine since their figures; only with chargebacks."""
    if not lake.settings.are_chargebacks or not groups:
        return set()
    last = max(day for day, _ in groups)
    (latest,) = lake.store.query(
        f"SELECT max(date) AS day FROM {tables.GOLD_FEATURE_DRIFT.name} WHERE date < {sql_text.value(last)}",
        tables.GOLD_FEATURE_DRIFT,
    ).to_pylist()
    since = min(day for day, _ in groups) if latest["day"] is None else latest["day"]
    first, end = (
        (datetime.combine(day, time()) - lake.settings.genuine_after).date()
        for day in (since, last + timedelta(days=1))
    )
    days = f"WHERE date BETWEEN {sql_text.value(first)} AND {sql_text.value(end)}"
    older = lake.store.query(
        f"SELECT DISTINCT {', '.join(_DAYS)} FROM {tables.GOLD_FRAUD_PREDICTIONS.name} {days}",
        tables.GOLD_FRAUD_PREDICTIONS,
    ).to_pylist()
    return {(row["date"], row["model_version"]) for row in older}.difference(groups)


def genuine_until(lake: Lake) -> datetime | None:
    """Return the time up to which predictions without a verdict count as genuine, given the newest prediction.

    None if there are no predictions.
    """
    (newest,) = lake.store.query(
        f"SELECT max(date) AS day FROM {tables.GOLD_FRAUD_PREDICTIONS.name}", tables.GOLD_FRAUD_PREDICTIONS
    ).to_pylist()
    if newest["day"] is None:
        return None
    on_day = f"WHERE date = {sql_text.value(newest['day'])}"
    (latest,) = lake.store.query(
        f"SELECT max(timestamp) AS time FROM {tables.GOLD_FRAUD_PREDICTIONS.name} {on_day}",
        tables.GOLD_FRAUD_PREDICTIONS,
    ).to_pylist()
    at: datetime = latest["time"]
    return at.astimezone(UTC) - lake.settings.genuine_after


def measure(lake: Lake, groups: Collection[Group], profiles: dict[str, Profile]) -> None:
    """Compute quality and drift of whole days by version, and merge the figures into their tables."""
    dates = {day for day, _ in groups}
    if not dates:
        return
    totals = lake.store.count_by_day(tables.GOLD_FRAUD_PREDICTIONS, one_of("date", sorted(dates)))
    until = genuine_until(lake) if lake.settings.are_chargebacks else None
    figures = [
        (_compute_here if sum(totals[day] for day in lot) <= _FEW else _compute_in_spark)(lake, lot, profiles, until)
        for lot in divided(totals, _AT_ONCE)
    ]

    def update(table: tables.Table, keys: tuple[str, ...], computed: list[pa.Table]) -> None:
        rows = pa.concat_tables([table.schema.empty_table(), *computed])
        named = zip(*(rows[name].to_pylist() for name in _DAYS), strict=True)
        is_of_groups = pa.array([group in groups for group in named], pa.bool_())
        lake.writer(table).upsert_rows(rows.filter(is_of_groups), keys)

    qualities = [quality for quality, _ in figures]
    drifts = [moved for _, moved in figures]
    threads.call_all(
        [
            partial(update, tables.GOLD_PREDICTION_QUALITY, prediction_quality.KEYS, qualities),
            partial(update, tables.GOLD_FEATURE_DRIFT, (*_DAYS, "feature"), drifts),
        ]
    )


def _compute_here(
    lake: Lake, dates: list[date], profiles: dict[str, Profile], until: datetime | None = None
) -> tuple[pa.Table, pa.Table]:
    """Return quality and drift of days, computed in this process, which takes less time than a query of Spark."""
    decided = lake.store.query(
        f"SELECT {', '.join(verdicts.CHOSEN_BY)} FROM {tables.SILVER_VERDICTS.name} {_on(dates)}",
        tables.SILVER_VERDICTS,
    )
    latest = verdicts.latest_of(decided)
    names = dict.fromkeys((*_READ, *(name for profile in profiles.values() for name in profile["shapes"])))
    rows = lake.store.query(
        f"SELECT {sql_text.names(names)} FROM {tables.GOLD_FRAUD_PREDICTIONS.name} {_on(dates)}",
        tables.GOLD_FRAUD_PREDICTIONS,
    )
    quality = [tables.GOLD_PREDICTION_QUALITY.schema.empty_table()]
    moved = [tables.GOLD_FEATURE_DRIFT.schema.empty_table()]
    for group in rows.group_by(_DAYS).aggregate([]).to_pylist():
        is_of = pc.and_(*(pc.equal(rows[name], pa.scalar(group[name], rows[name].type)) for name in _DAYS))
        part = rows.filter(is_of)
        quality.append(prediction_quality.measure_group(part, latest, _budget(lake), until))
        if group["model_version"] in profiles:
            moved.append(drift.measure_group(part, profiles[group["model_version"]]))
    return pa.concat_tables(quality), pa.concat_tables(moved)


def _compute_in_spark(
    lake: Lake, dates: list[date], profiles: dict[str, Profile], until: datetime | None = None
) -> tuple[pa.Table, pa.Table]:
    """Return quality and drift of days, computed by Spark."""
    scored = refresh.on_dates(lake.read(tables.GOLD_FRAUD_PREDICTIONS), dates)
    decided = verdicts.latest(refresh.on_dates(lake.read(tables.SILVER_VERDICTS), dates))
    quality = prediction_quality.prediction_quality(scored, decided, _budget(lake), until).toArrow()
    return quality.cast(tables.GOLD_PREDICTION_QUALITY.schema), drift.drift(scored, profiles)


def _budget(lake: Lake) -> Budget:
    return Budget(lake.settings.alert_budget, lake.settings.alert_cost)


def _on(dates: Iterable[date]) -> str:
    return f"WHERE {one_of('date', sorted(dates))}"
