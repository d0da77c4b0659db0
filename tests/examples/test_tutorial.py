"""Document 000: the fraud detection tutorial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples import console, feed
from examples.flink_phrasebook.fraud_detector_flag import FraudDetector
from tests.conftest import FLINK, SHORT_LIVED

from .conftest import Printed, flink

pytestmark = pytest.mark.stream


@pytest.mark.long
def test_a_program_runs_when_it_is_started(printed: Printed) -> None:
    lines = printed("execution_environment")
    assert lines[:2] == ["planned, not run", "fraud_detection ran over 10 rows"]
    assert lines[2].startswith("local[")


@pytest.mark.long
def test_the_source_goes_on_until_it_is_stopped(printed: Printed) -> None:
    assert printed("transaction_source") == [
        "micro-batch 0",
        "1000 1 188.23",
        "1001 2 0.5",
        "1002 2 600.0",
        "1003 3 42.0",
        "1004 1 0.89",
        "1005 1 300.0",
        "micro-batch 1",
        "1006 4 0.1",
        "1007 4 520.0",
        "1008 3 0.75",
        "1009 3 800.0",
        "1010 1 188.23",
        "1011 2 0.5",
        "stopped",
    ]


def test_the_first_step_alerts_on_everything(printed: Printed) -> None:
    accounts = {1000: 1, 1001: 2, 1002: 2, 1003: 3, 1004: 1, 1005: 1, 1006: 4, 1007: 4, 1008: 3, 1009: 3}
    lines = [f"{time} Alert{{id={account}}}" for time, account in accounts.items()]
    assert printed("alert_on_everything") == ["micro-batch 0", *lines]


def test_the_sink_logs_each_alert(printed: Printed) -> None:
    assert printed("alert_sink") == [f"INFO  AlertSink - Alert{{id={account}}}" for account in (1, 2, 2)]


def test_version_1_alerts_as_flink_does(printed: Printed) -> None:
    lines = printed("fraud_detector_flag")
    assert lines == [
        "micro-batch 0",
        "1002 Alert{id=2}",
        "micro-batch 1",
        "1007 Alert{id=4}",
        "1009 Alert{id=3}",
    ]
    assert [line for line in lines if "Alert" in line] == flink("detector_tutorial")


@pytest.mark.long
def test_version_1_alerts_as_flink_does_on_a_thousand_transactions(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FLINK / "json" / "twodays_first1000.pojo.jsonl").read_text().splitlines()
    rows = [(int(row["accountId"]), row["ts"], row["amount"]) for row in map(json.loads, text)]
    stream = feed.stream(spark, tmp_path / "input", [rows], feed.TRANSACTION).groupBy("account_id")
    alerts = stream.transformWithStateInPandas(FraudDetector(), "timestamp LONG, alert STRING", "Append", "None")

    console.print_stream(alerts, tmp_path / "checkpoint")

    lines = [line for line in capsys.readouterr().out.splitlines() if "Alert" in line]
    assert sorted(lines) == sorted(flink("detector_twodays"))


def test_version_2_forgets_the_flag_after_a_while(printed: Printed) -> None:
    assert printed("fraud_detector_timer") == [
        "Alert{id=1}",
        "timer: the flag of account 2 is cleared",
        "timer: the flag of account 3 is cleared",
        "Alert{id=4}",
    ]


@pytest.mark.long
def test_the_vectorised_detector_alerts_alike(printed: Printed) -> None:
    assert printed("fraud_detector_vectorised") == [
        "micro-batch 0",
        "1970-01-01 00:00:01.002000 2 0.5 600.0 0.001",
        "1970-01-01 00:00:01.007000 4 0.1 520.0 0.001",
        "1970-01-01 00:00:01.009000 3 0.75 800.0 0.001",
    ]


@pytest.mark.long
def test_partitions_make_the_parallelism(printed: Printed) -> None:
    assert printed("parallelism") == ["source 4", "map 4", "keyBy 8", "repartition(3) 3", "coalesce(1) 1"]


@pytest.mark.long
def test_a_killed_detector_goes_on_where_it_was(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT_LIVED.items():
        monkeypatch.setenv(name, value)
    lines = printed("fault_tolerance")
    assert lines[:2] == ["killed in micro-batch 1, behind its write", "micro-batch 1"]
    assert lines[2:] == flink("detector_tutorial")
