"""Quality and drift of a day's predictions, computed in this process: by hand and by counting."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.features import account_features
from fraudlake.lake import open_lake
from fraudlake.model import drift, prediction_quality
from fraudlake.model.metrics import Budget
from fraudlake.settings import Settings
from fraudlake.streams import prediction_figures
from tests import plain_lake

DAY = date(2026, 3, 7)


def predictions(*rows: tuple[float, bool, bool | None]) -> pa.Table:
    """Predictions of a day (probability, prediction, Flink's label), whose ids are their numbers."""
    columns = dict(zip(("probability", "prediction", "label"), zip(*rows, strict=True), strict=True))
    count = len(rows)
    named = {"transaction_id": [str(n) for n in range(count)], "date": [DAY] * count}
    paid = {"account_id": [f"a{n % 3}" for n in range(count)], "amount": [10.0 * (n + 1) for n in range(count)]}
    table = pa.table(named | paid | {"model_version": ["1"] * count} | {name: list(of) for name, of in columns.items()})
    return table.set_column(7, "label", table["label"].cast(pa.bool_()))


def quality(rows: pa.Table, verdicts: dict[int, bool] | None = None) -> dict[str, dict[str, Any]]:
    decided = pa.table(
        {
            "transaction_id": pa.array(map(str, verdicts or {}), pa.string()),
            "verdict": pa.array((verdicts or {}).values(), pa.bool_()),
        }
    )
    return {row["judged_by"]: row for row in prediction_quality.measure_group(rows, decided).to_pylist()}


def test_quality_by_hand() -> None:
    # By falling probability the labels are: fraud, not, fraud, not; average precision = (1/1 + 2/3) / 2.
    figures = quality(predictions((0.9, True, True), (0.8, True, False), (0.6, True, True), (0.1, False, False)))
    assert set(figures) == {"flink"}
    row = figures["flink"]
    assert (row["date"], row["model_version"], row["transactions"], row["fraud"]) == (DAY, "1", 4, 2)
    assert (row["true_prediction_rate"], row["precision"], row["recall"]) == (0.75, pytest.approx(2 / 3), 1.0)
    assert row["area_under_pr"] == pytest.approx((1 + 2 / 3) / 2)
    assert row["area_under_roc"] == 3 / 4
    # Three accounts, of which the first and the third have a fraud; the amounts of the frauds are 10 and 30.
    assert (row["alert_budget"], row["card_precision"], row["card_recall"]) == (100, 2 / 3, 1.0)
    assert (row["precision_at_budget"], row["recall_at_budget"], row["amount_saved"]) == (0.5, 1.0, 40.0)


def test_figures_at_a_budget_and_a_cost_of_alerts() -> None:
    rows = predictions((0.9, True, True), (0.8, True, False), (0.6, True, True), (0.1, False, False))
    decided = pa.table({"transaction_id": pa.array([], pa.string()), "verdict": pa.array([], pa.bool_())})
    (row,) = prediction_quality.measure_group(rows, decided, Budget(1, 2.5)).to_pylist()
    assert (row["alert_budget"], row["card_precision"], row["card_recall"]) == (1, 1.0, 0.5)
    assert (row["precision_at_budget"], row["recall_at_budget"], row["amount_saved"]) == (1.0, 0.5, 40 - 3 * 2.5)


def test_a_prediction_without_a_label_is_judged_by_the_verdict_alone() -> None:
    figures = quality(predictions((0.9, True, None), (0.2, False, False)), {0: True, 1: True})
    flink, verdict = figures["flink"], figures["verdict"]
    assert (flink["transactions"], flink["true_prediction_rate"], flink["precision"]) == (1, 1.0, None)
    assert (verdict["transactions"], verdict["true_prediction_rate"], verdict["recall"]) == (2, 0.5, 0.5)


def test_of_chargebacks_a_prediction_is_genuine_with_age_and_a_verdict_beats_that() -> None:
    rows = predictions((0.9, True, True), (0.8, True, None), (0.6, True, False), (0.1, False, True), (0.1, False, None))
    times = [datetime(2026, 3, 7, hour, tzinfo=UTC) for hour in range(5)]
    rows = rows.append_column("timestamp", pa.array(times, pa.timestamp("us", "UTC")))
    decided = pa.table({"transaction_id": ["1", "4"], "verdict": [True, True]})
    (row,) = prediction_quality.measure_group(rows, decided, genuine_until=times[2]).to_pylist()
    # Known are a genuine one, a fraud, a genuine one, and a fraud that is not old; Flink's labels do not count.
    assert (row["judged_by"], row["transactions"], row["fraud"]) == ("chargebacks", 4, 2)
    assert (row["precision"], row["recall"]) == (pytest.approx(1 / 3), 0.5)


def test_drift_of_a_day_is_the_index_of_its_counts() -> None:
    values = np.arange(100, dtype=float)
    rows = predictions(*[(0.5, False, False)] * 100)
    for name in account_features.NAMES:
        rows = rows.drop_columns([name] if name in rows.column_names else []).append_column(name, pa.array(values))
    # Of 100 values 0 to 99, those up to 9 are in the first bin: 10 % now, 50 % in training.
    shape = drift.Shape(edges=[9.0], shares=[0.5, 0.5], median=9.0)
    found = drift.measure_group(rows, drift.Profile(shapes={"amount": shape}, until="2026-03-06")).to_pylist()
    assert found == [
        {
            "date": DAY,
            "model_version": "1",
            "feature": "amount",
            "transactions": 100,
            "psi": pytest.approx((0.1 - 0.5) * np.log(0.1 / 0.5) + (0.9 - 0.5) * np.log(0.9 / 0.5)),
            "is_after_training": True,
        }
    ]


def test_a_feature_may_be_a_keyword_of_sql(tmp_path: Path) -> None:
    feature = {"name": "order", "aggregate": "count", "window": "1 day"}
    lake = open_lake(Settings(lake=tmp_path, features=[feature]))
    scored = lake.table(tables.GOLD_FRAUD_PREDICTIONS)
    row = {"probability": 0.9, "prediction": True, "label": True, "model_version": "1", "date": DAY, "order": 2.0}
    plain_lake.fill(tmp_path, scored, {**row, "transaction_id": "1", "account_id": "a", "amount": 10.0})

    prediction_figures.measure(lake, {(DAY, "1")}, {"of another version": {"shapes": {"order": {}}}})

    (figures,) = lake.store.rows(tables.GOLD_PREDICTION_QUALITY).to_pylist()
    assert (figures["judged_by"], figures["precision"], figures["recall"]) == ("flink", 1.0, 1.0)
