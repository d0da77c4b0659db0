from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fraudlake import gold, tables
from fraudlake.gold import account_daily
from fraudlake.lake import contents, delta_rs_writer, open_lake
from fraudlake.operations import maintenance
from fraudlake.settings import Settings
from fraudlake.streams import aggregate, stream
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, land, silver

pytestmark = pytest.mark.stream

DAY = 86_400 * SECOND


def rows(number: int) -> list[Row]:
    """Forty rows of four accounts over two days."""
    return [
        Row(str(i % 4), MARCH_7 + (i % 2) * DAY + (number * 40 + i) * SECOND, 20.0, f"part-{number}", i)
        for i in range(40)
    ]


def daily(lake: Any) -> list[stream.Stream]:
    return [stream for stream in aggregate.streams(lake) if stream.step == "account_daily"]


def counted(lake: Any) -> int:
    return sum(lake.query(account_daily.TABLE, "transactions")["transactions"].to_pylist())


@dataclass
class Maintained:
    """A lake that was maintained repeatedly while its stream ran, with the rows streamed and the failures."""

    lake: Any
    streamed: int
    failures: list[Exception]


@pytest.fixture(scope="module")
def maintained(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maintained]:
    with pytest.MonkeyPatch.context() as patch:
        read = (tables.SILVER_TRANSACTIONS, tables.SILVER_ALERTS, tables.SILVER_RULES)
        patch.setattr(contents, "TABLES", (*read, *(aggregate.table for aggregate in gold.GROUPED)))
        lake = open_lake(
            Settings(lake=tmp_path_factory.mktemp("maintained"), interval="200 ms", retention=timedelta(0))
        )
        patch.setattr(contents, "TABLES", (tables.SILVER_TRANSACTIONS, account_daily.TABLE))
        failures: list[Exception] = []

        def maintain() -> None:
            try:
                for number in range(3):
                    land(lake, rows(number))
                    maintenance.optimize(lake)
                    maintenance.vacuum(lake)
                    deadline = time.monotonic() + 120
                    while counted(lake) < 40 * (number + 1) and time.monotonic() < deadline:
                        time.sleep(0.2)
            except Exception as error:
                failures.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # as a person would stop the stream

        maintaining = threading.Thread(target=maintain)
        maintaining.start()
        (done,) = stream.run(lake, daily(lake), "continuous")
        maintaining.join()
        yield Maintained(lake, done.rows, failures)


@pytest.mark.long
def test_maintenance_runs_while_a_stream_runs_and_no_row_is_lost(maintained: Maintained) -> None:
    assert maintained.failures == []
    assert maintained.streamed == 120
    spark = maintained.lake.spark
    daily = spark.sql("SELECT account_id, date, transactions, amount_sum FROM gold_account_daily").collect()
    assert sorted((row[0], str(row[1]), row[2], row[3]) for row in daily) == [
        (account, f"2026-03-0{7 + int(account) % 2}", 30, 600.0) for account in "0123"
    ]
    history = spark.sql("DESCRIBE HISTORY gold_account_daily").collect()
    versions = {name: [row["version"] for row in history if row["operation"] == name] for name in ("OPTIMIZE", "MERGE")}
    assert any(min(versions["MERGE"]) < version < max(versions["MERGE"]) for version in versions["OPTIMIZE"])


@pytest.mark.long
def test_files_that_a_stream_has_still_to_read_are_not_removed(maintained: Maintained) -> None:
    lake = maintained.lake
    land(lake, rows(3))
    assert "silver_transactions" in maintenance.optimize(lake)

    assert maintenance.vacuum(lake).skipped == {"silver_transactions": ["account_daily"]}
    stream.run(lake, daily(lake), "available-now")
    assert counted(lake) == 160

    folder = lake.root / "tables" / "silver_transactions"
    before = len(list(folder.rglob("*.parquet")))
    assert maintenance.vacuum(lake).skipped == {}
    assert len(list(folder.rglob("*.parquet"))) < before
    assert lake.count(tables.SILVER_TRANSACTIONS) == 160


@pytest.fixture
def only_silver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "TABLES", (tables.SILVER_TRANSACTIONS,))
    monkeypatch.setattr(contents, "VIEWS", ())


@pytest.mark.usefixtures("only_silver")
def test_zorder_within_days_leaves_few_files_to_read_for_an_account(lake: Any) -> None:
    opened = lake(target_file_size="4k")
    land(opened, [Row(f"{i % 500:03}", MARCH_7 + (i % 2) * DAY + i, 20.0, "part-0", i) for i in range(5000)])
    assert maintenance.optimize(opened) == ["silver_transactions"]
    history = opened.spark.sql("SELECT * FROM silver_transactions WHERE account_id = '123'")
    everything = opened.spark.sql("SELECT * FROM silver_transactions").inputFiles()
    assert len({Path(file).parent.name for file in everything}) == 2
    assert len(history.inputFiles()) <= len(everything) / 4
    assert history.count() == 10

    assert maintenance.optimize(opened) == []
    land(opened, rows(0)[1::2])
    assert maintenance.optimize(opened) == ["silver_transactions"]
    rewritten = {*opened.spark.sql("SELECT * FROM silver_transactions").inputFiles()} - {*everything}
    assert {Path(file).parent.name for file in rewritten} == {"date=2026-03-08"}


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_what_predictive_optimization_compacted_is_still_clustered(lake: Any) -> None:
    """It runs OPTIMIZE without ZORDER, whenever it likes."""
    opened = lake()
    for number in range(2):
        land(opened, rows(number))
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == ["silver_transactions"]
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == []


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_a_liquid_table_that_another_one_clustered_is_left_alone(lake: Any) -> None:
    opened = lake(clustering="liquid")
    for number in range(2):
        opened.writer(tables.SILVER_TRANSACTIONS).append(opened.session.createDataFrame(silver(rows(number))))
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == []


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_what_was_compacted_on_the_way_is_still_clustered(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_COMPACT_EVERY", 1)
    opened = lake()
    land(opened, rows(0))
    opened.writer(tables.SILVER_TRANSACTIONS).append(opened.read(tables.SILVER_TRANSACTIONS), ("again", 0))
    last = opened.spark.sql("DESCRIBE HISTORY silver_transactions").first()
    assert (last["operation"], json.loads(last["userMetadata"])) == ("OPTIMIZE", {"auto_compaction": True})
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert maintenance.optimize(opened) == []
    assert opened.count(tables.SILVER_TRANSACTIONS) == 80


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_new_tables_of_a_liquid_lake_are_clustered_instead_of_partitioned(lake: Any) -> None:
    opened = lake(clustering="liquid")
    detail = opened.spark.sql("DESCRIBE DETAIL silver_transactions").first()
    assert (detail["clusteringColumns"], detail["partitionColumns"]) == (["date", "account_id"], [])
    for number in range(2):
        opened.writer(tables.SILVER_TRANSACTIONS).append(opened.session.createDataFrame(silver(rows(number))))
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert opened.count(tables.SILVER_TRANSACTIONS) == 80
