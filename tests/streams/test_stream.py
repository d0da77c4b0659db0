from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from fraudlake import tables
from fraudlake.bronze import messages
from fraudlake.errors import FraudlakeError, cause_of
from fraudlake.gold import account_daily, account_tiles, detector_agreement
from fraudlake.lake import Lake
from fraudlake.lake.appender import Appender
from fraudlake.process.stop import StoppedError
from fraudlake.streams import aggregate, detect, ingest, refine, stream
from tests.conftest import land_flink
from tests.oracle import Row
from tests.transactions import MARCH_7, land

pytestmark = pytest.mark.stream


@pytest.mark.long
def test_streams_over_what_is_there_all_come_to_their_end(lake: Callable[..., Lake], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    opened = lake()
    for step in (ingest.streams, refine.streams, detect.streams):
        stream.run(opened, step(opened), "available-now")

    # Ten transactions and three alerts.
    aggregates = aggregate.streams(opened)
    done = stream.run(opened, aggregates, "available-now")
    assert [(result.step, result.rows) for result in done] == [("account_daily", 13)]
    assert opened.store.count(account_daily.TABLE) == 4
    assert opened.store.count(detector_agreement.TABLE) == 1
    assert opened.store.count(account_tiles.TABLE) > 0
    # A workspace keeps the files of these tables for longer.
    streams = [*refine.streams(opened), *detect.streams(opened), *aggregates]
    assert {table.name for one in streams for table in one.reads} <= tables.STREAMED


@pytest.mark.long
@pytest.mark.parametrize(("ordering", "without_rows"), [("arrival", []), ("event_time", ["detect"])])
def test_a_query_is_started_only_where_there_may_be_something_to_do(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, ordering: str, without_rows: list[str]
) -> None:
    """What waits for the watermark may come out without new rows."""
    opened = lake(ordering=ordering, buckets=2)
    started: list[str] = []
    start = stream._start

    def noted(lake: Lake, one: stream.Stream, trigger: str) -> object:
        started.append(one.step)
        return start(lake, one, trigger)

    def steps_started() -> list[str]:
        started.clear()
        stream.run(opened, detect.streams(opened), "available-now")
        return list(started)

    monkeypatch.setattr(stream, "_start", noted)
    land(opened, [Row("1", MARCH_7, 0.5, "part-0", 0)])
    assert steps_started() == ["detect"]
    assert steps_started() == without_rows
    opened.spark.sql("OPTIMIZE silver_transactions")
    assert steps_started() == without_rows
    land(opened, [Row("1", MARCH_7 + 1, 900.0, "part-0", 1)])
    assert steps_started() == ["detect"]


@pytest.mark.usefixtures("each_writer")
def test_a_micro_batch_that_is_repeated_is_appended_once(lake: Callable[..., Lake]) -> None:
    opened, table = lake(), tables.BRONZE_FILES
    schema = opened.read(table).schema

    def append(path: str, batch_id: int) -> None:
        row = opened.session.createDataFrame([(path, *[None] * (len(schema) - 1))], schema)
        Appender.of(opened, "ingest").append(opened, row, table, batch_id)

    append("first", 0)
    append("first once more", 0)
    append("second", 1)
    opened.spark.sql(f"OPTIMIZE {table.name}")
    append("second once more", 1)
    append("third", 2)
    assert sorted(row["path"] for row in opened.read(table).collect()) == ["first", "second", "third"]


def test_messages_that_are_repeated_are_appended_once_whoever_writes_them(lake: Callable[..., Lake]) -> None:
    opened, table = lake(), tables.BRONZE_TRANSACTIONS

    def append(offset: int, batch_id: int) -> None:
        message = (b'{"accountId": "3"}', "topic", 0, offset)
        batch = opened.session.createDataFrame([message], "value BINARY, topic STRING, partition INT, offset BIGINT")
        appender, rows = Appender.of(opened, "ingest_kafka"), batch.select(*messages.KAFKA_COLUMNS)
        appender.append(opened, rows, table, batch_id, compute=messages.read)

    left_by_a_crash = spool(opened) / "half.arrow"
    left_by_a_crash.parent.mkdir(parents=True)
    left_by_a_crash.touch()
    append(0, 0)
    append(1, 0)
    assert not spool(opened).exists()
    # From here on Spark alone writes the table.
    opened.spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    append(2, 0)
    append(3, 1)
    append(4, 1)
    rows = opened.read(table).select("accountId", "_topic", "_partition", "_offset").orderBy("_offset").collect()
    assert [tuple(row) for row in rows] == [("3", "topic", 0, 0), ("3", "topic", 0, 3)]


def spool(lake: Lake) -> Path:
    return Path(lake.name) / "spool" / lake.checkpoint("ingest_kafka").notes.id


def test_what_is_no_exception_ends_a_stream_too(lake: Callable[..., Lake], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    opened = lake()

    def panic(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        raise SystemExit("a panic")

    with pytest.raises(FraudlakeError, match=r"ingest failed: .*SystemExit: a panic"):
        stream.run(opened, [dataclasses.replace(ingest.streams(opened)[0], write=panic)], "available-now")


def test_what_fails_because_it_is_stopped_is_no_failure_and_is_repeated(
    lake: Callable[..., Lake], landing: Path
) -> None:
    land_flink(landing, "tutorial/int96")
    opened = lake()

    def stopped(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        raise OSError("the other end is gone")

    stream.run(opened, ingest.streams(opened), "available-now")
    (refining,) = refine.streams(opened)
    with pytest.raises(StoppedError, match="stopped by SIGTERM"):
        stream.run(opened, [dataclasses.replace(refining, write=stopped)], "available-now")
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 0
    stream.run(opened, [refining], "available-now")
    assert opened.store.count(tables.SILVER_TRANSACTIONS) == 10


@pytest.mark.parametrize(("trigger", "ends_by_itself"), [("available-now", True), ("continuous", False)])
def test_a_signal_ends_a_stream_after_the_micro_batch_that_is_under_way(
    lake: Callable[..., Lake], landing: Path, trigger: str, ends_by_itself: bool
) -> None:
    for number in range(3):
        land_flink(landing / str(number), "tutorial/int96")
    opened = lake(max_files_per_trigger=1, interval="100 ms")
    (ingesting,) = ingest.streams(opened)

    def signalled(lake: Lake, batch: DataFrame, batch_id: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        ingesting.write(lake, batch, batch_id)

    with pytest.raises(StoppedError) if ends_by_itself else contextlib.nullcontext():
        stream.run(opened, [dataclasses.replace(ingesting, write=signalled, after=lambda: None)], trigger)
    assert opened.store.count(tables.BRONZE_TRANSACTIONS) == 10
    assert opened.checkpoint("ingest").next_batch == 1

    stream.run(opened, ingest.streams(opened), "available-now")
    assert opened.store.count(tables.BRONZE_TRANSACTIONS) == 30


def test_a_full_disk_is_the_cause_and_not_the_file_that_could_not_be_parsed() -> None:
    failed = "DeltaError: Failed to parse parquet: Unable to copy data to file: No space left on device (os error 28)"
    assert cause_of(failed).startswith("a disk is full: free space")


def test_a_failure_is_told_by_its_cause_and_not_by_the_plan_that_spark_prints_behind_it() -> None:
    failed = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
    plan = "\n=== Streaming Query ===\nIdentifier: [id = 1]\n+- ~StreamingExecutionRelation DeltaSource"
    assert cause_of(f"{failed}[NOT_EMPTY] a folder should be empty{plan}") == "[NOT_EMPTY] a folder should be empty"
    silent = (
        "Reason: Return Message: Traceback (most recent call last):\n  File 'a.py', line 1\npyspark.ArgumentException\n"
    )
    assert cause_of(f"a.b.UserException: {silent}\tat a.B.c(B.java:1)") == "pyspark.ArgumentException"
    assert cause_of(f"{failed}x{plan}\nCaused by: a.b.CError: no space left\n\tat a.B.c(B.java:1)").endswith(
        "no space left"
    )
