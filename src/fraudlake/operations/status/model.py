"""Model: how good its predictions are, and how far its features have drifted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fraudlake import tables
from fraudlake.model import drift
from fraudlake.model.prediction_quality import CHARGEBACKS, judge_of
from fraudlake.operations.status.problem import Problem
from fraudlake.streams import prediction_figures
from fraudlake.text.sql_text import literal, one_of, value

if TYPE_CHECKING:
    from fraudlake.lake import Lake

_AFTER_TRAINING = ("precision_at_budget", "recall_at_budget", "area_under_pr", "card_precision", "card_recall")
"""The model's figures on days after its training: means over the days for which they are defined."""


@dataclass(frozen=True)
class Model:
    """Figures of the model that has scored last."""

    predictions: int = 0
    quality: dict[str, Any] = field(default_factory=dict)
    drift: dict[str, Any] = field(default_factory=dict)
    """Stability index by feature on the latest complete day: see docs/how-to/model.md."""
    breaches: list[str] = field(default_factory=list)
    """Problems of the model on that day, a sentence each."""


def read(lake: Lake) -> Model:
    """Read the figures."""
    latest = _latest_day(lake)
    return Model(
        predictions=lake.store.count(tables.GOLD_FRAUD_PREDICTIONS),
        quality=_quality(lake),
        drift=latest.psi,
        breaches=[str(problem) for problem in _problems(latest, lake)],
    )


def _quality(lake: Lake) -> dict[str, Any]:
    """Aggregate the daily figures of the latest model version that has scored.

    ``true_prediction_rate`` is over all of its predictions. The figures of ``after_training`` are means over the
    ``days`` after its training data; they are empty if there is no such day.
    """
    versions = lake.store.query(
        "SELECT model_version, sum(transactions) AS transactions, sum(fraud) AS fraud, "
        "sum(true_prediction_rate * transactions) / sum(transactions) AS true_prediction_rate "
        f"FROM {tables.GOLD_PREDICTION_QUALITY.name} WHERE {_is_judged(lake)} GROUP BY model_version",
        tables.GOLD_PREDICTION_QUALITY,
    )
    latest: dict[str, Any] = max(versions.to_pylist(), key=lambda version: int(version["model_version"]), default={})
    return latest and {**latest, "after_training": _after_training(lake, latest["model_version"])}


def _is_judged(lake: Lake) -> str:
    """Return the SQL condition that rows of prediction quality are by the judge of all predictions.

    With chargebacks, the latest days are left out: only frauds are labelled there, and would bias the figures.
    """
    judge = judge_of(lake.settings)
    is_judged = f"judged_by = {literal(judge)}"
    until = prediction_figures.genuine_until(lake) if judge == CHARGEBACKS else None
    return is_judged if until is None else f"{is_judged} AND date < {value(until.date())}"


def _after_training(lake: Lake, version: str) -> dict[str, float]:
    of_version = f"model_version = {literal(version)}"
    later = lake.store.query(
        f"SELECT DISTINCT date FROM {tables.GOLD_FEATURE_DRIFT.name} WHERE {of_version} AND is_after_training",
        tables.GOLD_FEATURE_DRIFT,
    )
    days = later["date"].to_pylist()
    if not days:
        return {}
    (row,) = lake.store.query(
        f"SELECT {', '.join(['count(*) AS days', *(f'avg({name}) AS {name}' for name in _AFTER_TRAINING)])} "
        f"FROM {tables.GOLD_PREDICTION_QUALITY.name} "
        f"WHERE {_is_judged(lake)} AND {of_version} AND {one_of('date', days)}",
        tables.GOLD_PREDICTION_QUALITY,
    ).to_pylist()
    return {name: value for name, value in row.items() if value is not None} if row["days"] else {}


@dataclass(frozen=True)
class _Day:
    """The latest complete day with enough transactions, after the training data of its model version."""

    date: str = ""
    version: str = ""
    psi: dict[str, float] = field(default_factory=dict)


def _latest_day(lake: Lake) -> _Day:
    (all_days,) = lake.store.query(
        f"SELECT max(date) AS newest FROM {tables.GOLD_FEATURE_DRIFT.name}", tables.GOLD_FEATURE_DRIFT
    ).to_pylist()
    if all_days["newest"] is None:
        return _Day()
    # The newest day is not complete.
    rows = lake.store.query(
        "SELECT date, CAST(model_version AS INT) AS version, feature, psi "
        f"FROM {tables.GOLD_FEATURE_DRIFT.name} "
        f"WHERE is_after_training AND transactions >= {drift.LEAST} AND date < DATE '{all_days['newest']}' "
        "ORDER BY psi DESC",
        tables.GOLD_FEATURE_DRIFT,
    ).to_pylist()
    if not rows:
        return _Day()
    day, version = max((row["date"], row["version"]) for row in rows)
    psi = {row["feature"]: row["psi"] for row in rows if (row["date"], row["version"]) == (day, version)}
    return _Day(str(day), str(version), psi)


def _rates(lake: Lake, day: _Day) -> list[dict[str, Any]]:
    """Return a version's true prediction rate on a day, by judge; for chargebacks, on its latest labelled day."""
    of_version = f"model_version = {literal(day.version)}"
    on = f"date = DATE '{day.date}'"
    if lake.settings.are_chargebacks:
        is_known = f"{_is_judged(lake)} AND date <= DATE '{day.date}'"
        (latest,) = lake.store.query(
            f"SELECT max(date) AS day FROM {tables.GOLD_PREDICTION_QUALITY.name} WHERE {of_version} AND {is_known}",
            tables.GOLD_PREDICTION_QUALITY,
        ).to_pylist()
        if latest["day"] is None:
            return []
        on = f"judged_by = {literal(CHARGEBACKS)} AND date = {value(latest['day'])}"
    columns = "date, judged_by, true_prediction_rate"
    clauses = f"WHERE {of_version} AND {on} ORDER BY judged_by"
    return [
        *lake.store.query(
            f"SELECT {columns} FROM {tables.GOLD_PREDICTION_QUALITY.name} {clauses}", tables.GOLD_PREDICTION_QUALITY
        ).to_pylist()
    ]


def _problems(day: _Day, lake: Lake) -> Iterator[Problem]:
    settings = lake.settings
    for name, psi in day.psi.items():
        if psi > settings.max_drift:
            yield Problem(
                f"{name} of {day.date} has drifted from the training data of model version {day.version} "
                f"(stability index {psi:.2f}, above {settings.max_drift:g})",
                "train again",
            )
    for row in _rates(lake, day) if day.date else ():
        if row["true_prediction_rate"] < settings.min_true_prediction_rate:
            yield Problem(
                f"model version {day.version} is right on {row['true_prediction_rate']:.2%} of the transactions of "
                f"{row['date']} (judged by {row['judged_by']}), below {settings.min_true_prediction_rate:.2%}",
                "train again, or roll back",
            )
