"""The main job, through the command line, on transactions that a real Flink wrote."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.gold import detector_agreement
from fraudlake.lake import contents
from tests.conftest import FLINK, run
from tests.test_cli import fraudlake, without_java

pytestmark = pytest.mark.stream


def test_the_tutorials_transactions_alert_for_accounts_2_4_and_3_in_that_order(main_job: Any) -> None:
    alerts = main_job.spark.sql(
        "SELECT account_id, evidence.amount, measures.seconds_between FROM silver_alerts "
        "WHERE timestamp < '2000-01-01' ORDER BY timestamp"
    )
    assert [tuple(row) for row in alerts.collect()] == [
        ("2", [0.5, 600.0], "0.001"),
        ("4", [0.1, 520.0], "0.001"),
        ("3", [0.75, 800.0], "0.001"),
    ]


def test_our_alerts_are_those_that_flink_listed(main_job: Any) -> None:
    with (FLINK / "json" / "twodays_alerts.csv").open() as file:
        flink = {(row["accountId"], int(row["ts_ms"]), float(row["amount"])) for row in csv.DictReader(file)}
    ours = main_job.spark.sql(
        "SELECT account_id, unix_millis(timestamp), amount FROM silver_alerts WHERE timestamp > '2000-01-01'"
    )
    rows = [tuple(row) for row in ours.collect()]
    assert len(rows) == len(flink) == 2773
    assert set(rows) == flink


def test_our_alerts_are_on_the_very_rows_that_flink_flagged(main_job: Any) -> None:
    agreement = main_job.read(detector_agreement.TABLE).orderBy("date").collect()
    assert [(str(row["date"]), row["only_flink"], row["only_spark"]) for row in agreement] == [
        ("1970-01-01", 0, 0),
        ("2026-03-07", 0, 0),
        ("2026-03-08", 0, 0),
    ]
    assert sum(row["both"] for row in agreement) == 2776


@pytest.mark.long
def test_a_second_run_adds_no_row(main_job: Any) -> None:
    before = {table.name: main_job.store.count(table) for table in contents.TABLES}
    run(main_job.root, "run")
    assert {table.name: main_job.store.count(table) for table in contents.TABLES} == before


def test_alerts_explain_themselves(main_job: Any) -> None:
    row = main_job.read(tables.SILVER_ALERTS).orderBy("timestamp").first()
    assert row["explanation"] == (
        "Account 2: SMALL 0.50 at 1970-01-01 00:00:01, LARGE 600.00 at 1970-01-01 00:00:01 (UTC); "
        "seconds_between 0.001."
    )


def test_account_days_add_up_to_the_transactions(main_job: Any) -> None:
    spark = main_job.spark
    daily = spark.sql(
        "SELECT sum(transactions), round(sum(amount_sum), 2), max(amount_max), sum(small_transactions), "
        "sum(large_transactions), sum(alerts) FROM gold_account_daily"
    )
    straight = spark.sql(
        "SELECT count(*), round(sum(amount), 2), max(amount), count_if(amount < 1), count_if(amount > 500), "
        "(SELECT count(*) FROM silver_alerts) FROM silver_transactions"
    )
    assert daily.collect() == straight.collect()


def test_the_model_learns_flinks_label(main_job: Any) -> None:
    quality = main_job.spark.sql(
        "SELECT sum(true_prediction_rate * transactions) / sum(transactions) AS rate, sum(transactions) AS n, "
        "min_by(area_under_pr, date) AS area FROM gold_prediction_quality WHERE date = '2026-03-08'"
    )
    (row,) = quality.collect()
    assert row["n"] == main_job.spark.sql("SELECT * FROM silver_transactions WHERE date = '2026-03-08'").count()
    assert row["rate"] > 0.99
    assert row["area"] > 0.95


def test_status_reconciles_and_prints_one_json_object(main_job: Any, capfd: pytest.CaptureFixture[str]) -> None:
    run(main_job.root, "--json", "status")
    told = json.loads(capfd.readouterr().out)
    assert told["reconciles"] is True
    assert (told["landed"], told["bronze"], told["silver"], told["quarantine"]) == (50_010, 50_010, 50_010, 0)
    assert (told["landed_files"], told["rejected_files"], told["alerts"]) == (42, 0, 2776)


def test_status_fails_when_rows_have_landed_that_bronze_does_not_hold(
    main_job: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run(main_job.root, "status", "--landing", str(FLINK / "tutorial" / "int96"))
    assert end.value.code == 1
    assert "50,020 rows landed but bronze holds 50,010" in capfd.readouterr().out


def test_steps_that_have_nothing_to_read_start_no_java(main_job: Any) -> None:
    steps = ("run", "--steps", "refine,aggregate")
    ended = fraudlake("--lake", str(main_job.root), "--json", *steps, PATH=str(main_job.root), JAVA_HOME="")
    assert ended.returncode == 0, ended.stderr
    done = [one for step in json.loads(ended.stdout)["steps"].values() for one in step["streams"]]
    assert {one["step"]: one["rows"] for one in done} == {"refine": 0, "account_daily": 0}


def test_status_and_models_are_read_without_java(main_job: Any) -> None:
    told = without_java(main_job.root, "status")
    (version,) = without_java(main_job.root, "model", "list")["versions"]

    assert told["gaps"] == told["breaches"] == []
    assert (told["alerts"], told["predictions"]) == (2776, 50_010)
    assert told["agreement"] == {"transactions": 50_010, "both": 2776, "only_flink": 0, "only_spark": 0}
    assert told["quality"]["transactions"] == 50_010
    assert set(told["last_batches"]) >= {"ingest", "refine", "detect", "score"}
    assert (version["number"], version["aliases"]) == ("1", ["champion"])
