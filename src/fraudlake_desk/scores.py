"""Scores: backtests a rule of the kind ``model`` on the predictions that the lake already has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from fraudlake import tables
from fraudlake.detection import evidence
from fraudlake.model import budget
from fraudlake.rules.compiled_rule import Alert

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from fraudlake.lake.store import Store
    from fraudlake.review.window import Window
    from fraudlake.rules.kinds.model import ModelRule

_SCORED = ("probability", "model_version", "reasons")


def scored(store: Store, window: Window) -> pa.Table:
    """Return the scored transactions of a range, :func:`evidence.needs` and their scores.

    If a transaction has several predictions, the first by :data:`tables.PREDICTION_ORDER` counts.
    """
    silver = tables.SILVER_TRANSACTIONS
    predictions = tables.GOLD_FRAUD_PREDICTIONS
    columns = [f"t.{name}" for name in evidence.needs(store.settings)] + [f"p.{name}" for name in _SCORED]
    return store.query(
        f"SELECT {', '.join(columns)} "
        f"FROM {silver.name} t JOIN (SELECT transaction_id, {', '.join(_SCORED)}, "
        f"row_number() OVER (PARTITION BY transaction_id ORDER BY {tables.PREDICTION_ORDER}) AS nth "
        f"FROM {predictions.name} WHERE {window.sql}) p ON t.transaction_id = p.transaction_id AND p.nth = 1 "
        f"WHERE {window.has('t.date')}",
        silver,
        predictions,
    )


def alerts(store: Store, rule: ModelRule, rows: pa.Table) -> list[Alert]:
    """Return the alerts of a rule on scored transactions; a budget is another probability for each model version."""
    levels = _levels(store, rule, rows["model_version"].unique().to_pylist())
    level = np.array([levels[version] for version in rows["model_version"].to_pylist()])
    raised = np.flatnonzero(rows["probability"].to_numpy() >= level)
    scores = rows.select(_SCORED).take(raised).to_pylist()
    return [
        Alert((number,), ("SCORED",), {**score, "threshold": float(level[number])})
        for number, score in zip(raised.tolist(), scores, strict=True)
    ]


def _levels(store: Store, rule: ModelRule, versions: Iterable[str]) -> dict[str, float]:
    """Return the probability from which a rule raises an alert, for each version of the model."""
    if not isinstance(rule.threshold, str):
        return dict.fromkeys(versions, rule.threshold)
    models = tables.GOLD_MODELS
    published = store.query(f"SELECT DISTINCT model_version, profile FROM {models.name}", models).to_pylist()
    profiles = {row["model_version"]: json.loads(row["profile"]) for row in published}
    thresholds = budget.thresholds(rule.threshold, profiles)
    return {version: thresholds.get(version, float("inf")) for version in versions}
