"""Figures of the model in ``status``, from days that are written by hand: those after its training come first."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.lake import open_lake
from fraudlake.operations.status import status
from fraudlake.settings import load

MARCH = [date(2026, 3, day) for day in (7, 8, 9)]


def quality(day: date, version: str, at_budget: float | None, judged_by: str = "flink") -> dict[str, Any]:
    return {
        "date": day, "model_version": version, "judged_by": judged_by, "transactions": 100, "fraud": 2,
        "true_prediction_rate": 0.98, "precision_at_budget": at_budget, "recall_at_budget": 0.5, "area_under_pr": 0.25,
    }  # fmt: skip


def drift(day: date, version: str, is_after_training: bool) -> dict[str, Any]:
    return {
        "date": day, "model_version": version, "feature": "amount", "transactions": 100, "psi": 0.0,
        "is_after_training": is_after_training,
    }  # fmt: skip


@pytest.mark.slow
def test_status_has_the_figures_at_the_budget_of_the_days_after_the_training_of_the_latest_version(
    tmp_path: Path,
) -> None:
    lake = open_lake(load(lake=tmp_path / "lake"))
    judged = [
        *(quality(MARCH[0], "2", 0.9), quality(MARCH[1], "2", 0.4), quality(MARCH[2], "2", 0.2)),
        *(quality(MARCH[1], "1", 0.8), quality(MARCH[1], "2", 0.7, "verdict")),
    ]
    days = [drift(MARCH[0], "2", False), drift(MARCH[1], "2", True), drift(MARCH[2], "2", True)]
    for table, rows in ((tables.GOLD_PREDICTION_QUALITY, judged), (tables.GOLD_FEATURE_DRIFT, days)):
        lake.writer(table).write(pa.Table.from_pylist(rows, table.schema), "append")

    figures = status(lake).model.quality

    at_budget = {"precision_at_budget": (0.4 + 0.2) / 2, "recall_at_budget": 0.5, "area_under_pr": 0.25}
    assert figures["after_training"] == pytest.approx({"days": 2, **at_budget})
    assert (figures["model_version"], figures["transactions"]) == ("2", 300)


@pytest.mark.slow
def test_of_chargebacks_status_looks_at_days_whose_genuine_transactions_are_known(tmp_path: Path) -> None:
    given = {"labels": "chargebacks", "genuine_after": "1 day", "min_true_prediction_rate": "0.99"}
    lake = open_lake(load(lake=tmp_path / "lake", **given))
    judged = [
        quality(MARCH[0], "2", 0.9, "chargebacks"),
        {**quality(MARCH[1], "2", 0.1, "chargebacks"), "true_prediction_rate": 0.2},
        quality(MARCH[0], "2", 0.5),
    ]
    days = [{**drift(day, "2", True), "transactions": 1000} for day in MARCH]
    newest = datetime(2026, 3, 9, 12, tzinfo=UTC)
    scored = [{"transaction_id": "t", "account_id": "a", "timestamp": newest, "date": MARCH[2], "model_version": "2"}]
    for table, rows in (
        (tables.GOLD_PREDICTION_QUALITY, judged),
        (tables.GOLD_FEATURE_DRIFT, days),
        (tables.GOLD_FRAUD_PREDICTIONS, scored),
    ):
        lake.writer(table).write(pa.Table.from_pylist(rows, table.schema), "append")

    found = status(lake).model

    assert (found.quality["transactions"], found.quality["after_training"]["precision_at_budget"]) == (100, 0.9)
    (breach,) = found.breaches
    assert breach.startswith("model version 2 is right on 98.00% of the transactions of 2026-03-07 (judged by chargeb")
