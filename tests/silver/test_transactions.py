from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.settings import Settings
from fraudlake.silver import quality_rules, transactions
from fraudlake.times import epochs

pytestmark = pytest.mark.stream

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)
NAN, INF = float("nan"), float("inf")


def bronze(spark: Any, *rows: tuple[datetime | None, str | None, float | None]) -> Any:
    full = [
        {
            "dt": dt,
            "accountId": account,
            "amount": amount,
            "alert": False,
            "_source_file": "part-0",
            "_source_row": i,
            "_ingested_at": NOON,
            "date": dt and dt.date(),
        }
        for i, (dt, account, amount) in enumerate(rows)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(full, tables.BRONZE_TRANSACTIONS.schema))


CASES: list[tuple[Any, list[str]]] = [
    ((NOON, "1", 0.01), []),
    ((NOON, None, 5.0), ["account_is_named"]),
    ((NOON, " ", 5.0), ["account_is_named"]),
    ((NOON, "\u00a0 \t", 5.0), ["account_is_named"]),  # a no-break space
    ((NOON, "\u3000\u2003\u2028", 5.0), ["account_is_named"]),  # spaces of other widths, and a line separator
    ((NOON, "\u200b\ufeff\u2060\u200d", 5.0), ["account_is_named"]),  # zero-width, and a byte order mark
    ((NOON, "\x00\x1f\x85", 5.0), ["account_is_named"]),  # control characters
    ((NOON, "\u3164\u2800", 5.0), ["account_is_named"]),  # letters without ink
    ((NOON, " 44 ", 5.0), []),
    ((NOON, "\ufeff7", 5.0), []),
    ((NOON, "\U0001f600", 5.0), []),
    ((NOON, "1", None), ["amount_is_known"]),
    ((NOON, "1", NAN), ["amount_is_known"]),
    ((NOON, "1", INF), ["amount_is_finite"]),
    ((NOON, "1", -INF), ["amount_is_finite", "amount_is_positive"]),
    ((NOON, "1", -5.0), ["amount_is_positive"]),
    ((NOON, "1", 0.0), ["amount_is_positive"]),
    ((None, "1", 5.0), ["timestamp_is_known"]),
    ((datetime(1, 1, 1, tzinfo=UTC), "1", 5.0), ["timestamp_is_known", "timestamp_is_not_before_floor"]),
    ((datetime(1, 1, 2, tzinfo=UTC), "1", 5.0), ["timestamp_is_not_before_floor"]),
    ((datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC), "1", 5.0), ["timestamp_is_not_in_future"]),
    ((datetime(9999, 12, 31, tzinfo=UTC), "1", 5.0), ["timestamp_is_known", "timestamp_is_not_in_future"]),
    ((datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "1", 5.0), ["timestamp_is_not_before_floor"]),
    ((datetime(1970, 1, 1, tzinfo=UTC), "1", 5.0), []),
    ((NOON + timedelta(days=2), "1", 5.0), ["timestamp_is_not_in_future"]),
    ((NOON + timedelta(hours=20), "1", 5.0), []),
    ((None, None, None), ["account_is_named", "amount_is_known", "timestamp_is_known"]),
]
"""Rows (time, account, amount), and the names of the rules that each breaks."""


def test_each_row_has_the_name_of_every_rule_that_it_breaks(spark: Any) -> None:
    rows = [row for row, _ in CASES]
    checked = transactions.checked(bronze(spark, *rows), Settings()).orderBy("_source_row")
    # Python cannot tell the first day of the calendar.
    broken = [row["reasons"] for row in checked.select("reasons").collect()]
    assert [*zip(rows, broken, strict=True)] == CASES


def test_a_time_that_is_likely_in_another_unit_is_quarantined_for_that_unit(spark: Any) -> None:
    marks = F.array(*(F.lit(epochs.mark(unit)) for unit in epochs.UNITS))
    rows = bronze(spark, *[(NOON, "1", 5.0)] * len(epochs.UNITS))
    rows = rows.withColumn("_misfits", F.array(F.get(marks, F.col("_source_row").cast("int"))))
    names = [f"timestamp_is_not_in_{unit}" for unit in epochs.UNITS]
    strict, lenient = (
        [row["reasons"] for row in transactions.checked(rows, settings).orderBy("_source_row").collect()]
        for settings in (Settings(), Settings(warn=tuple(names)))
    )
    assert strict == [[name] for name in names]
    assert lenient == [[]] * len(names)


def test_a_rule_that_only_warns_lets_the_row_through_with_its_name(spark: Any) -> None:
    rows = bronze(spark, (NOON, "1", -5.0), (NOON, "2", 5.0), (NOON, None, -5.0))
    checked = transactions.checked(rows, Settings(warn=("amount_is_positive",)))
    passed = [(row["account_id"], row["warnings"]) for row in transactions.valid(checked).collect()]
    assert passed == [("1", ["amount_is_positive"]), ("2", None)]
    assert [row["reasons"] for row in transactions.quarantined(checked).collect()] == [["account_is_named"]]


def test_an_amount_that_is_not_plausible_only_warns_unless_the_settings_say_otherwise(spark: Any) -> None:
    amounts = (1e12, 1e12 + 1, 1.7e308, INF, NAN)
    rows = bronze(spark, *((NOON, "1", amount) for amount in amounts))

    def of(**given: Any) -> list[list[tuple[float, Any]]]:
        checked = transactions.checked(rows, Settings(**given))
        accepted = [(row["amount"], row["warnings"]) for row in transactions.valid(checked).collect()]
        rejected = [(row["amount"], row["reasons"]) for row in transactions.quarantined(checked).collect()]
        return [accepted, [(amount, reasons) for amount, reasons in rejected if amount < INF]]

    name = ["amount_is_plausible"]
    assert of() == [[(1e12, None), (1e12 + 1, name), (1.7e308, name)], []]
    assert of(warn=()) == [[(1e12, None)], [(1e12 + 1, name), (1.7e308, name)]]
    assert of(max_amount=2e12) == [[(1e12, None), (1e12 + 1, None), (1.7e308, name)], []]


@pytest.mark.usefixtures("spark")
def test_every_rule_is_among_the_reasons_that_can_be_asked_for() -> None:
    settings = Settings(columns={"kind": "string", "shop": {"type": "string", "nullable": False}})
    rules, reasons = quality_rules.make_rules(settings, F.current_timestamp()), quality_rules.reasons(settings)
    assert tuple(rule.name for rule in rules) == reasons[: len(rules)]
    assert reasons[len(rules) - 3 : len(rules)] == ("kind_fits", "shop_fits", "shop_is_given")
    assert reasons[len(rules) :] == ("position_is_new", "transaction_is_new", "late", "forgotten")


def test_a_row_may_not_be_ahead_of_the_time_of_its_arrival(spark: Any) -> None:
    rows = bronze(spark, (NOON + timedelta(days=2), "1", 5.0))
    assert transactions.checked(rows, Settings()).first()["reasons"] == ["timestamp_is_not_in_future"]
    later = F.lit(NOON + timedelta(days=3))
    assert transactions.checked(rows, Settings(), later).first()["reasons"] == []


def test_the_producers_own_id_is_taken_where_it_is_not_blank(spark: Any) -> None:
    rows = bronze(spark, (NOON, "1", 5.0), (NOON, "1", 6.0))
    own = rows.withColumn("transaction_id", F.when(F.col("amount") == 5, "tx-1").otherwise("  "))
    first, second = (
        row["transaction_id"] for row in transactions.valid(transactions.checked(own, Settings())).collect()
    )
    assert first == "tx-1"
    assert second.endswith("-1") and len(second) == 18


def test_each_row_is_either_valid_or_quarantined(spark: Any) -> None:
    rows = bronze(spark, (NOON, "1", 5.0), (NOON, None, 5.0), (NOON, "2", -1.0), (NOON, "3", 7.0))
    checked = transactions.checked(rows, Settings())
    assert [row["account_id"] for row in transactions.valid(checked).collect()] == ["1", "3"]
    quarantined = transactions.quarantined(checked).drop("reasons", "quarantined_at")
    assert_df_equality(quarantined, rows.where("_source_row IN (1, 2)").drop("date"))


def test_a_derived_id_depends_on_the_source_position_alone(spark: Any) -> None:
    first = transactions.valid(transactions.checked(bronze(spark, (NOON, "1", 5.0), (NOON, "1", 5.0)), Settings()))
    again = transactions.valid(transactions.checked(bronze(spark, (NOON, "9", 7.0)), Settings()))
    ids = [row["transaction_id"] for row in first.collect()]
    assert len(set(ids)) == 2
    assert again.first()["transaction_id"] == ids[0]


def test_a_derived_id_is_the_hash_of_the_source_in_sixteen_digits_and_the_position(spark: Any) -> None:
    sources = [f"2026-03-07--{number:02}/part-{number}" for number in range(200)]
    rows = spark.createDataFrame([(source, number**7) for number, source in enumerate(sources)], "s STRING, p BIGINT")
    hashed, made = F.xxhash64("s"), transactions.derived_id("s", "p")
    found = rows.select(hashed.alias("hash"), "p", made.alias("id")).collect()
    assert [row["id"] for row in found] == [f"{row['hash'] % 2**64:016x}-{row['p']}" for row in found]
    assert min(len(f"{row['hash'] % 2**64:x}") for row in found) < 16  # one of them begins with a zero


def test_the_first_character_of_a_text_does_not_hide_the_others(spark: Any) -> None:
    texts = ["a", "~", "!", " a", "\x7fa", "\u3000\u0101", "\u0101", "", " ", "\x7f", "\u200b\u3000", None]
    rows = spark.createDataFrame([(text,) for text in texts], "text STRING")
    found = [row[0] for row in rows.select(quality_rules.is_blank("text")).collect()]
    assert found == [False] * 7 + [True] * 5
