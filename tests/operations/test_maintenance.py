from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.gold import account_daily, gold_tables
from fraudlake.lake import contents, delta_rs_writer, open_lake, rewriting
from fraudlake.operations import maintenance
from fraudlake.process import stop
from fraudlake.process.stop import StoppedError
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
    return sum(
        lake.store.query(f"SELECT transactions FROM {account_daily.TABLE.name}", account_daily.TABLE)[
            "transactions"
        ].to_pylist()
    )


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
        patch.setattr(contents, "TABLES", (*read, *(aggregate.table for aggregate in gold_tables.GROUPED)))
        files = {"target_file_size": "1k", "cluster_growth": 0, "retention": timedelta(0)}
        lake = open_lake(Settings(lake=tmp_path_factory.mktemp("maintained"), interval="200 ms", **files))
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
    assert lake.store.count(tables.SILVER_TRANSACTIONS) == 160


@pytest.fixture
def only_silver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "TABLES", (tables.SILVER_TRANSACTIONS,))
    monkeypatch.setattr(contents, "VIEWS", ())


@pytest.mark.usefixtures("only_silver")
def test_zorder_within_days_leaves_few_files_to_read_for_an_account(lake: Any) -> None:
    opened = lake(target_file_size="16k")
    land(opened, [Row(f"{i % 500:03}", MARCH_7 + (i % 2) * DAY + i, 20.0, "part-0", i) for i in range(20_000)])
    assert maintenance.optimize(opened) == ["silver_transactions"]
    history = opened.spark.sql("SELECT * FROM silver_transactions WHERE account_id = '123'")
    everything = opened.spark.sql("SELECT * FROM silver_transactions").inputFiles()
    assert len({Path(file).parent.name for file in everything}) == 2
    assert len(history.inputFiles()) <= len(everything) / 4
    assert history.count() == 40

    assert maintenance.optimize(opened) == []
    clustered = paths(opened)
    land(opened, rows(0)[1::2])
    assert maintenance.optimize(opened) == []
    land(opened, rows(1)[1::2])
    assert maintenance.optimize(opened) == ["silver_transactions"]
    (compacted,) = paths(opened) - clustered
    assert clustered < paths(opened)
    assert maintenance.optimize(lake(target_file_size="16k", cluster_growth=0)) == ["silver_transactions"]
    assert {Path(file).parent.name for file in paths(opened) - clustered} == {"date=2026-03-08"}
    assert compacted not in paths(opened)
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 20_040


def two_days(lake: Any) -> None:
    """Land two days of so many rows that each is clustered into several files of four kilobytes."""
    land(lake, [Row(f"{i % 500:03}", MARCH_7 + (i % 2) * DAY + i, 20.0, "part-0", i) for i in range(2000)])


def paths(lake: Any) -> set[str]:
    return {file.path for file in lake.store.files(tables.SILVER_TRANSACTIONS)}


def clusterings(lake: Any) -> list[list[str]]:
    """The days of each commit that clustered, the oldest first."""
    history = reversed(lake.store.history(tables.SILVER_TRANSACTIONS))
    return [sorted(commit.days) for commit in history if commit.operation == "OPTIMIZE"]


@pytest.mark.usefixtures("only_silver", "each_writer")
def test_only_the_day_that_has_grown_is_clustered_again(lake: Any) -> None:
    opened = lake(target_file_size="4k")
    two_days(opened)
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert maintenance.optimize(opened) == []
    land(opened, [Row(f"{i:03}", MARCH_7 + DAY + i, 20.0, "part-1", i) for i in range(500)])
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert clusterings(opened) == [["2026-03-07", "2026-03-08"], ["2026-03-08"]]
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 2500


@pytest.mark.usefixtures("only_silver")
def test_two_that_optimize_at_once_do_the_work_once(lake: Any) -> None:
    opened = lake(target_file_size="4k")
    two_days(opened)
    with ThreadPoolExecutor() as pool:
        at_once = [pool.submit(maintenance.optimize, lake(target_file_size="4k")) for _ in range(2)]
    assert sorted(len(one.result()) for one in at_once) == [0, 1]
    assert clusterings(opened) == [["2026-03-07", "2026-03-08"]]
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 2000


def test_the_failure_of_a_table_is_reported_and_keeps_no_other_from_being_optimized(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "TABLES", (tables.BRONZE_FILES, tables.SILVER_TRANSACTIONS))
    opened = lake(target_file_size="4k")
    two_days(opened)
    for path in "ab":
        opened.writer(tables.BRONZE_FILES).write(
            pa.Table.from_pylist([{"path": path}], tables.BRONZE_FILES.schema), "append"
        )
    for file in (opened.root / "tables" / "bronze_files").glob("*.parquet"):
        file.unlink()
    with pytest.raises(FraudlakeError, match=r"^not optimized, the other tables are: bronze_files \(.*parquet"):
        maintenance.optimize(opened)
    assert clusterings(opened) == [["2026-03-07", "2026-03-08"]]


@pytest.mark.usefixtures("only_silver")
def test_a_signal_stops_between_two_days_and_the_next_call_does_the_other_one(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, rewrite = lake(target_file_size="4k"), rewriting.rewrite
    two_days(opened)

    def signalled(*arguments: Any) -> None:
        rewrite(*arguments)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)

    monkeypatch.setattr(maintenance, "_PORTION", 1)
    monkeypatch.setattr(rewriting, "rewrite", signalled)
    with stop.handled(), pytest.raises(StoppedError):
        maintenance.optimize(opened)
    monkeypatch.setattr(rewriting, "rewrite", rewrite)
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert sorted(clusterings(opened)) == [["2026-03-07"], ["2026-03-08"]]
    assert maintenance.optimize(opened) == []


KILLED = """
import time
from fraudlake_cli.main import main
from fraudlake.lake import rewriting
from fraudlake.operations import maintenance

def slow(*arguments):
    rewrite(*arguments)
    time.sleep(600)

rewrite, rewriting.rewrite, maintenance._PORTION = rewriting.rewrite, slow, 1
main()
"""
"""A program that clusters one day."""


@pytest.mark.long
def test_the_call_after_a_kill_between_two_days_does_the_other_one(lake: Any) -> None:
    opened = lake(target_file_size="4k")
    two_days(opened)
    command = (sys.executable, "-c", KILLED, "--lake", str(opened.root), "optimize", "--target-file-size", "4k")
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 120
        while not clusterings(opened) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert len(clusterings(opened)) == 1
    assert "silver_transactions" in maintenance.optimize(opened)
    assert sorted(clusterings(opened)) == [["2026-03-07"], ["2026-03-08"]]
    assert "silver_transactions" not in maintenance.optimize(opened)
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 2000


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_what_predictive_optimization_compacted_is_still_clustered(lake: Any) -> None:
    """It runs OPTIMIZE without ZORDER, whenever it likes."""
    opened = lake(target_file_size="1k")
    for number in range(2):
        land(opened, rows(number))
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == ["silver_transactions"]
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == []


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_a_liquid_table_that_another_one_clustered_is_left_alone(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lake(clustering="liquid")
    for number in range(2):
        opened.writer(tables.SILVER_TRANSACTIONS).append(opened.session.createDataFrame(silver(rows(number))))
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert maintenance.optimize(opened) == []
    histories = {"silver_transactions": opened.store.history(tables.SILVER_TRANSACTIONS)}

    def ask_again(table: tables.Table) -> None:
        raise AssertionError(table.name)

    monkeypatch.setattr(opened.store, "history", ask_again)
    assert maintenance.optimize(opened, histories=histories) == []


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_what_was_compacted_on_the_way_is_still_clustered(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_COMPACT_EVERY", 1)
    opened = lake(target_file_size="16k")
    for _ in range(2):
        land(opened, rows(0))
    last = opened.store.history(tables.SILVER_TRANSACTIONS)[0]
    assert (last.operation, last.is_clustered) == ("OPTIMIZE", False)
    opened = lake(target_file_size="1k")
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert maintenance.optimize(opened) == []
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 80


@pytest.mark.long
@pytest.mark.usefixtures("only_silver")
def test_new_tables_of_a_liquid_lake_are_clustered_instead_of_partitioned(lake: Any) -> None:
    opened = lake(clustering="liquid")
    detail = opened.spark.sql("DESCRIBE DETAIL silver_transactions").first()
    assert (detail["clusteringColumns"], detail["partitionColumns"]) == (["date", "account_id"], [])
    for number in range(2):
        opened.writer(tables.SILVER_TRANSACTIONS).append(opened.session.createDataFrame(silver(rows(number))))
    assert maintenance.optimize(opened) == ["silver_transactions"]
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 80


@pytest.mark.usefixtures("only_silver")
@pytest.mark.long
def test_the_same_queries_read_the_same_rows_in_either_layout(lake: Any) -> None:
    landed = [Row(f"{i % 40:02}", MARCH_7 + (i % 2) * DAY + i * SECOND, float(i), "part-0", i) for i in range(400)]
    seen = []
    for layout in ("zorder", "liquid"):
        opened = lake(layout, clustering=layout)
        for part in (landed[:200], landed[200:]):
            opened.writer(tables.SILVER_TRANSACTIONS).append(opened.session.createDataFrame(silver(part)))
        assert maintenance.optimize(opened) == ["silver_transactions"]
        where = "WHERE date = DATE '2026-03-08' AND account_id = '07' ORDER BY position"
        figures = "GROUP BY date ORDER BY date"
        by_spark = opened.spark.sql(f"SELECT account_id, position, amount FROM silver_transactions {where}")
        seen.append(
            (
                opened.store.query(
                    f"SELECT account_id, position, amount FROM {tables.SILVER_TRANSACTIONS.name} {where}",
                    tables.SILVER_TRANSACTIONS,
                ).to_pylist(),
                [row.asDict() for row in by_spark.collect()],
                opened.store.query(
                    "SELECT date, count(*) AS rows, sum(amount) AS sum "
                    f"FROM {tables.SILVER_TRANSACTIONS.name} {figures}",
                    tables.SILVER_TRANSACTIONS,
                ).to_pylist(),
            )
        )
    expected = [
        {"account_id": row.account_id, "position": row.position, "amount": row.amount}
        for row in landed
        if row.account_id == "07" and row.position % 2
    ]
    assert seen[0][:2] == (expected, expected)
    assert seen[1] == seen[0]


def test_spark_is_not_asked_to_remove_files_if_there_are_none(lake: Any) -> None:
    opened, old = lake(), time.time() - 8 * 86_400
    for number in range(2):
        land(opened, rows(number))
    maintenance.optimize(opened)
    folder = opened.root / "tables" / "silver_transactions" / "date=2026-03-07"
    week = timedelta(days=7)
    assert not opened.store.may_have_unused_files(tables.SILVER_TRANSACTIONS, week)
    assert opened.store.may_have_unused_files(tables.SILVER_TRANSACTIONS, timedelta(0))
    (folder / "killed.parquet").write_bytes(b"half")
    assert not opened.store.may_have_unused_files(tables.SILVER_TRANSACTIONS, week)
    os.utime(folder / "killed.parquet", (old, old))
    assert opened.store.may_have_unused_files(tables.SILVER_TRANSACTIONS, week)
