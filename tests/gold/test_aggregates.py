from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from fraudlake.gold.account_daily import account_daily
from fraudlake.gold.account_tiles import account_tiles
from fraudlake.gold.detector_agreement import detector_agreement
from fraudlake.model.prediction_quality import prediction_quality
from fraudlake.settings import Settings

pytestmark = pytest.mark.stream

RULES = Settings().rules
MARCH_7, MARCH_8 = date(2026, 3, 7), date(2026, 3, 8)


def at(day: date, hour: int = 12) -> datetime:
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC)


def transactions(spark: Any) -> Any:
    rows = [
        ("a", "1", MARCH_7, 0.5, False),
        ("b", "1", MARCH_7, 600.0, True),
        ("c", "1", MARCH_8, 1.0, None),
        ("d", "2", MARCH_7, 500.0, True),
        ("e", "2", MARCH_7, 40.0, False),
    ]
    return spark.createDataFrame(
        rows, "transaction_id string, account_id string, date date, amount double, label boolean"
    )


def alerts(spark: Any) -> Any:
    rows = [
        ("b", "1", at(MARCH_7), "small_then_large", "account"),
        ("e", "2", at(MARCH_7, 23), "small_then_large", "account"),
        ("b", "1", at(MARCH_7), "small_then_large", "account"),
        ("a", "1", at(MARCH_7), "pattern", "account"),
        ("d", "2", at(MARCH_7), "small_then_large", "terminal"),  # of which Flink's detector knows nothing
    ]
    return spark.createDataFrame(
        rows, "transaction_id string, account_id string, timestamp timestamp, kind string, entity string"
    )


def test_account_daily_counts_what_an_account_did_on_a_day(spark: Any) -> None:
    days = account_daily(transactions(spark), alerts(spark), RULES).orderBy("account_id", "date")
    assert [tuple(row) for row in days.collect()] == [
        ("1", MARCH_7, 2, 600.5, 600.0, 1, 1, 3),
        ("1", MARCH_8, 1, 1.0, 1.0, 0, 0, 0),
        ("2", MARCH_7, 2, 540.0, 500.0, 0, 0, 2),
    ]


def test_amounts_at_the_edge_of_what_a_double_holds_leave_finite_sums(spark: Any) -> None:
    rows = [(account, MARCH_7, at(MARCH_7), sign * 1.7e308) for account, sign in (("1", 1), ("2", -1)) for _ in "ab"]
    huge = spark.createDataFrame(rows, "account_id string, date date, timestamp timestamp, amount double")
    for compute in (account_daily, account_tiles):
        made = compute(huge, alerts(spark), RULES).orderBy("account_id")
        assert [row["amount_sum"] for row in made.collect()] == [2e12, -2e12]


def test_agreement_counts_a_transaction_once_however_many_of_flinks_kind_of_rule_alert_on_it(spark: Any) -> None:
    agreement = detector_agreement(transactions(spark), alerts(spark), RULES).orderBy("date")
    assert [tuple(row) for row in agreement.collect()] == [(MARCH_7, 4, 1, 1, 1), (MARCH_8, 1, 0, 0, 0)]


def quality(
    spark: Any, *rows: tuple[float, bool, bool | None], verdicts: dict[int, bool] | None = None
) -> dict[str, Any]:
    """The quality of predictions (probability, prediction, Flink's label), by ``judged_by``; ids are their numbers."""
    full = [(str(number), "a", 10.0, MARCH_7, "1", *row) for number, row in enumerate(rows)]
    schema = (
        "transaction_id string, account_id string, amount double, date date, model_version string, "
        "probability double, prediction boolean, label boolean"
    )
    decided = [(str(number), verdict) for number, verdict in (verdicts or {}).items()]
    figures = prediction_quality(
        spark.createDataFrame(full, schema), spark.createDataFrame(decided, "transaction_id string, verdict boolean")
    )
    return {row["judged_by"]: row for row in figures.collect()}


def test_prediction_quality_by_hand(spark: Any) -> None:
    # By falling probability the labels are: fraud, not, fraud, not; average precision = (1/1 + 2/3) / 2.
    rows = (0.9, True, True), (0.8, True, False), (0.6, True, True), (0.1, False, False)
    row = quality(spark, *rows)["flink"]
    assert (row["transactions"], row["fraud"], row["true_prediction_rate"]) == (4, 2, 0.75)
    assert (row["precision"], row["recall"]) == (pytest.approx(2 / 3), 1.0)
    assert row["f1"] == pytest.approx(0.8)
    assert row["area_under_pr"] == pytest.approx((1 + 2 / 3) / 2)
    assert (row["area_under_roc"], row["card_precision"], row["amount_saved"]) == (0.75, 1.0, 20.0)


def test_equal_probabilities_are_one_step_of_the_curve(spark: Any) -> None:
    rows = (0.7, True, True), (0.7, True, False), (0.7, True, False), (0.7, True, False)
    assert quality(spark, *rows)["flink"]["area_under_pr"] == 0.25


def test_a_prediction_without_a_label_is_judged_by_the_verdict_alone(spark: Any) -> None:
    figures = quality(spark, (0.9, True, None), (0.2, False, False), verdicts={0: True, 1: True})
    flink, verdict = figures["flink"], figures["verdict"]
    assert (flink["transactions"], flink["true_prediction_rate"], flink["precision"]) == (1, 1.0, None)
    assert (verdict["transactions"], verdict["true_prediction_rate"], verdict["recall"]) == (2, 0.5, 0.5)
