"""A lake of an earlier version: its tables take new columns on, and its streams continue."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.gold import alert_windows
from fraudlake.lake import Lake, contents, open_lake
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from tests import oracle, plain_lake
from tests.conftest import FraudlakeHere, land_flink
from tests.gold.test_alert_windows import as_windows
from tests.oracle import Row
from tests.transactions import EPOCH, MARCH_7, SECOND, detected, land

pytestmark = pytest.mark.stream

LAKES = Path(__file__).parents[2] / "fixtures" / "lakes"
NEW = "channel STRING where the card was used"


@pytest.mark.long
def test_a_new_column_reaches_a_lake_that_is_there_and_its_streams_go_on(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = lake(buckets=2)
    assert detected(opened, [Row("1", MARCH_7, 0.5, "part-0", 0)]) == []

    before = tables.SILVER_TRANSACTIONS
    after = replace(before, described=f"{before.described}\n{NEW}")
    monkeypatch.setattr(tables, "SILVER_TRANSACTIONS", after)
    monkeypatch.setattr(contents, "TABLES", tuple(after if table is before else table for table in contents.TABLES))
    newer = lake(buckets=2)

    assert newer.read(tables.SILVER_TRANSACTIONS).columns[-1] == "channel"
    assert [row["channel"] for row in newer.read(tables.SILVER_TRANSACTIONS).collect()] == [None]
    # The state, from before the column was there, still holds the small transaction.
    newer.spark.sql(
        "INSERT INTO silver_transactions BY NAME "
        f"SELECT 'part-0-1' AS transaction_id, '1' AS account_id, timestamp_micros({MARCH_7 + SECOND}) AS timestamp, "
        "900D AS amount, 'part-0' AS source, 1L AS position, DATE'2026-03-07' AS date, 'online' AS channel"
    )
    stream.run(newer, detect.streams(newer), "available-now")
    alerts = newer.read(tables.SILVER_ALERTS).select("small_transaction_id", "transaction_id").collect()
    assert [tuple(alert) for alert in alerts] == [("part-0-0", "part-0-1")]
    assert lake(buckets=2).read(tables.SILVER_TRANSACTIONS).where("channel = 'online'").count() == 1


def _windows(lake: Lake) -> set[oracle.Window]:
    return as_windows(lake.read(alert_windows.VIEW).where("kind <> 'sliding'"))


def _oracle_windows(lake: Lake) -> set[oracle.Window]:
    rows = lake.query(tables.SILVER_TRANSACTIONS, "*").to_pylist()
    of_id = {
        row["transaction_id"]: Row(
            row["account_id"],
            round((row["timestamp"] - EPOCH) / timedelta(microseconds=1)),
            row["amount"],
            row["source"],
            row["position"],
        )
        for row in rows
    }
    alerted = lake.query(tables.SILVER_ALERTS, "transaction_id")["transaction_id"].to_pylist()
    windows = oracle.windows(list(of_id.values()), [of_id[one] for one in alerted])
    return {window for window in windows if window[0] != "sliding"}


@pytest.mark.long
def test_a_lake_of_the_version_before_opens_and_goes_on(spark: Any, tmp_path: Path) -> None:
    with tarfile.open(LAKES / "0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path / "lake", filter="data")
    # Spark notes the full path of a state's schema: it is as if the lake had been made here.
    noted = tmp_path / "lake" / "checkpoints" / "detect" / "state" / "0" / "_metadata" / "v2" / "0"
    noted.write_text(re.sub('file:/[^"]*/checkpoints/', f"file:{tmp_path}/lake/checkpoints/", noted.read_text()))
    noted.with_name(".0.crc").unlink()
    before = open_lake(Settings(lake=tmp_path / "lake"))
    windows = _windows(before)
    assert windows == _oracle_windows(before)  # the table of that version
    land_flink(tmp_path / "lake" / "landing", "tutorial/int96")
    for step in (ingest.streams, refine.streams, detect.streams, aggregate.streams):
        opened = open_lake(Settings(lake=tmp_path / "lake", buckets=2))
        stream.run(opened, step(opened), "available-now")
    now = status(opened)
    # 3,000 rows were there, 49 of them with an alert and 19 in quarantine; the tutorial's ten have three alerts.
    assert (now.landed, now.bronze, now.silver, now.quarantine, now.alerts) == (3010, 3010, 2991, 19, 52)
    assert now.agreement == {"transactions": 2991, "both": 52, "only_flink": 0, "only_spark": 0}
    assert now.gaps == []
    assert len(_windows(opened) & windows) > 0.9 * len(windows)
    assert _windows(opened) == _oracle_windows(opened)
    # One stream writes what three did.
    assert {folder.name for folder in opened.checkpoints.iterdir()} == {"ingest", "refine", "detect", "account_daily"}
    assert not (opened.root / "tables" / "gold_alert_windows").exists()


def test_windows_that_nothing_could_compute_again_are_not_removed(lake: Any) -> None:
    opened = lake()
    old = {"kind": "tumbling", "account_id": "1", "date": date(2025, 3, 7)}
    plain_lake.fill(opened.root, alert_windows.VIEW, old)
    land(opened, [Row("1", MARCH_7, 0.5)])
    with pytest.raises(UsageError, match="its windows since 2025-03-07 cannot be computed again, as silver_tr"):
        stream.run(opened, aggregate.streams(opened), "available-now")
    assert [row["date"] for row in opened.spark.table("gold_alert_windows").collect()] == [old["date"]]


def test_a_lake_of_the_version_before_is_read_as_it_is(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    with tarfile.open(LAKES / "0.1.0.tar.xz") as archive:
        archive.extractall(tmp_path / "lake", filter="data")
    before = sorted((tmp_path / "lake" / "tables").rglob("*"))
    assert not (tmp_path / "lake" / "tables" / "silver_rules").exists()
    shown = {}
    for command in ("status", "rules list", "quarantine", "model list"):
        done = fraudlake_here("--lake", str(tmp_path / "lake"), "--json", *command.split())
        assert (done.returncode, done.stderr) == (0, "")
        shown[command] = json.loads(done.stdout)
    assert (shown["status"]["bronze"], shown["status"]["alerts"], shown["status"]["gaps"]) == (3000, 49, [])
    assert [rule["name"] for rule in shown["rules list"]["rules"]] == ["small_then_large"]
    assert sorted((tmp_path / "lake" / "tables").rglob("*")) == before
