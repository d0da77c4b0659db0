from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from fraudlake import tables
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake import conflict, contents, delta_rs_writer, open_lake
from fraudlake.lake.lake import layout
from fraudlake.operations import maintenance
from fraudlake.operations.status import status
from fraudlake.settings import Settings
from fraudlake.streams import ingest, refine, stream
from fraudlake_tools import simulator
from tests.conftest import land_flink
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, silver

pytestmark = pytest.mark.stream


@pytest.mark.long
def test_auto_compaction_of_small_files_changes_no_row(lake: Any) -> None:
    opened = lake()
    opened.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    for i in range(5):
        # As Spark writes if delta-rs cannot.
        rows = opened.session.createDataFrame(silver([Row(str(i), MARCH_7 + i * SECOND, 20.0, position=i)]))
        rows.write.format("delta").mode("append").saveAsTable(opened.name_of(tables.SILVER_TRANSACTIONS))
    opened.spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
    operations = opened.spark.sql("DESCRIBE HISTORY silver_transactions").select("operation").collect()
    assert "OPTIMIZE" in {row["operation"] for row in operations}
    assert opened.spark.sql("DESCRIBE DETAIL silver_transactions").first()["numFiles"] < 5
    assert sorted(row["position"] for row in opened.read(tables.SILVER_TRANSACTIONS).collect()) == [0, 1, 2, 3, 4]


@pytest.mark.long
def test_landed_files_in_small_commits_are_compacted_automatically(
    lake: Any, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_rs_writer, "_COMPACT_EVERY", 4)
    simulator.simulate(landing, simulator.Traffic(), rows=50, file_rows=10)
    opened = lake(max_files_per_trigger=1)
    stream.run(opened, ingest.streams(opened), "available-now")
    operations = opened.spark.sql("DESCRIBE HISTORY bronze_transactions").select("operation").collect()
    assert [row["operation"] for row in operations].count("OPTIMIZE") == 1
    assert opened.spark.sql("DESCRIBE DETAIL bronze_transactions").first()["numFiles"] == 2
    stream.run(opened, refine.streams(opened), "available-now")
    assert opened.read(tables.BRONZE_TRANSACTIONS).distinct().count() == 50
    assert opened.read(tables.SILVER_TRANSACTIONS).count() == 50


def test_compaction_beside_other_writers_and_optimize_doubles_no_row(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_rs_writer, "_COMPACT_EVERY", 1)
    opened, table = lake(), tables.BRONZE_TRANSACTIONS

    def write(name: str) -> None:
        for row in range(8):
            opened.writer(table).write(pa.table({"_source_file": [name], "_source_row": [row]}), "append")

    def optimize() -> None:
        for _ in range(6):
            maintenance.optimize(opened)

    with ThreadPoolExecutor() as pool:
        for beside in [pool.submit(write, "a"), pool.submit(write, "b"), pool.submit(optimize)]:
            beside.result()
    rows = opened.store.query(f"SELECT _source_file, _source_row FROM {table.name}", table).to_pylist()
    assert sorted((row["_source_file"], row["_source_row"]) for row in rows) == [(n, i) for n in "ab" for i in range(8)]
    assert "OPTIMIZE" in {commit.operation for commit in opened.store.history(table)}


def test_compaction_leaves_a_table_alone_while_somebody_rewrites_it(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rs_writer, "_COMPACT_EVERY", 1)
    opened, table = lake(), tables.BRONZE_TRANSACTIONS

    def operations() -> list[str]:
        for _ in range(2):
            opened.writer(table).write(pa.table({"_source_file": ["a"]}), "append")
        return [commit.operation for commit in reversed(opened.store.history(table))]

    with opened.without_compaction(table):
        assert operations() == ["CREATE TABLE", "WRITE", "WRITE"]
    assert "OPTIMIZE" in operations()


def test_rows_that_are_put_in_place_right_behind_a_compaction_replace_all(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, table = lake(), tables.BRONZE_REJECTED_FILES
    a, b, c = (pa.Table.from_pylist([{"path": path}], table.schema) for path in "abc")
    for rows in (a, b):
        opened.writer(table).write(rows, "append")
    compactions = []

    def overtaken(*arguments: Any, **options: Any) -> None:
        if not compactions:
            compactions.append(opened.session.sql(f"OPTIMIZE {opened.name_of(table)}").collect())
        write_deltalake(*arguments, **options)

    monkeypatch.setattr(delta_rs_writer, "write_deltalake", overtaken)
    conflict.retried(lambda: opened.writer(table).write(c, "overwrite"))
    assert opened.store.rows(table)["path"].to_pylist() == ["c"]


def test_a_table_with_rows_marked_as_deleted_is_read_by_spark(lake: Any) -> None:
    opened = lake()
    opened.spark.sql("ALTER TABLE bronze_files SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    opened.spark.sql("INSERT INTO bronze_files (path) SELECT /*+ COALESCE(1) */ CAST(id AS STRING) FROM range(3)")
    opened.spark.sql("DELETE FROM bronze_files WHERE path = '1'")
    assert opened.store.query(f"SELECT count(*) AS total FROM {tables.BRONZE_FILES.name}", tables.BRONZE_FILES)[
        "total"
    ].to_pylist() == [2]
    assert sorted(opened.store.rows(tables.BRONZE_FILES)["path"].to_pylist()) == ["0", "2"]


def test_times_that_an_earlier_version_wrote_are_read_as_they_are_however_far_ahead(lake: Any) -> None:
    opened, table = lake(), tables.SILVER_TRANSACTIONS
    written = [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2026, 3, 7, tzinfo=UTC)]
    file = opened.root / "tables" / table.name / "date=2026-03-07" / "old.parquet"
    file.parent.mkdir()
    # As Spark writes by default.
    pq.write_table(pa.table({"timestamp": written}), file, use_deprecated_int96_timestamps=True)
    statistics = json.dumps({"numRecords": 2, "maxValues": {"timestamp": "9999-12-31T23:59:59.999Z"}})
    added = AddAction(f"date=2026-03-07/{file.name}", file.stat().st_size, {"date": "2026-03-07"}, 0, True, statistics)
    delta = DeltaTable(file.parents[1])
    delta.create_write_transaction([added], "append", delta.schema(), ["date"])
    read = opened.store.query(f"SELECT timestamp FROM {table.name} ORDER BY timestamp DESC", table)
    assert [time.replace(tzinfo=UTC) for time in read["timestamp"].to_pylist()] == written


def test_a_table_is_made_again_whose_first_commit_was_never_finished(lake: Any, tmp_path: Path) -> None:
    log = tmp_path / "lake" / "tables" / tables.SILVER_ALERTS.name / "_delta_log"
    log.mkdir(parents=True)
    # What Hadoop leaves behind if the process is killed before it renames the commit.
    (log / ".00000000000000000000.json.7451459c.tmp").write_text("{")
    assert lake().read(tables.SILVER_ALERTS).count() == 0


def test_a_table_whose_log_is_gone_is_neither_made_again_nor_read_as_empty(lake: Any, tmp_path: Path) -> None:
    opened = lake()
    opened.writer(tables.BRONZE_FILES).write(pa.table({"path": ["one"]}), "append")
    folder = tmp_path / "lake" / "tables" / tables.BRONZE_FILES.name
    shutil.rmtree(folder / "_delta_log")
    for must_exist in (False, True):
        with pytest.raises(FraudlakeError, match=r"bronze_files has files of rows, and its _delta_log is gone"):
            open_lake(opened.settings, must_exist=must_exist)
    assert len(list(folder.glob("*.parquet"))) == 1


def test_tables_are_those_that_spark_makes(lake: Any, tmp_path: Path) -> None:
    opened = lake()
    for table in map(opened.table, contents.TABLES):
        location = tmp_path / "by-spark" / table.name
        opened.spark.sql(f"CREATE TABLE delta.`{location}` {layout(table, 'zorder')}")
        made, expected = (DeltaTable(folder) for folder in (opened.root / "tables" / table.name, location))
        assert made.schema() == expected.schema() and made.protocol() == expected.protocol()
        own = {"delta.enableExpiredLogCleanup": "false"}  # `optimize` does it
        assert expected.metadata().configuration == dict(table.properties)
        assert made.metadata().configuration == own | dict(table.properties)
        assert made.metadata().partition_columns == expected.metadata().partition_columns


def test_a_table_has_its_plain_name_in_the_session_for_sql(lake: Any) -> None:
    names = {row["tableName"] for row in lake().spark.sql("SHOW TABLES").collect()}
    assert names == {table.name for table in (*contents.TABLES, *contents.VIEWS)}


def test_a_schema_without_the_tables_is_not_opened_for_reading(spark: Any, tmp_path: Path) -> None:
    spark.sql("CREATE DATABASE without_tables")
    folders = {name: str(tmp_path / name) for name in ("landing", "checkpoints")}
    settings = Settings(catalog="spark_catalog", schema_name="without_tables", **folders)
    with pytest.raises(FraudlakeError, match="without_tables has no table bronze_transactions yet"):
        open_lake(settings, spark.newSession(), must_exist=True)
    assert spark.sql("SHOW TABLES IN without_tables").count() == 0


@pytest.mark.parametrize(
    "name",
    [
        "hü?*",
        '$n; `o` "p"',
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("a b", "e#f", "{y}", "k:l", "~m", "s3:x", "it's", "${user.dir}")
        ),
    ],
)
def test_a_lake_may_be_in_a_folder_of_any_name(lake: Any, tmp_path: Path, name: str) -> None:
    land_flink(tmp_path / name / "landing", "tutorial/int96")
    opened = lake(name)
    stream.run(opened, ingest.streams(opened), "available-now")
    assert opened.read(tables.BRONZE_TRANSACTIONS).count() == 10
    assert opened.store.rows(tables.BRONZE_FILES).num_rows == 1
    assert status(open_lake(opened.settings, must_exist=True)).rows.bronze == 10
    assert len(list((tmp_path / name / "tables" / "bronze_files").glob("*.parquet"))) == 1


@pytest.mark.parametrize("name", ["a[1]", "b%20", "c|d", "e\x15"])
def test_a_lake_is_refused_in_a_folder_in_which_no_table_can_be_opened(lake: Any, name: str) -> None:
    with pytest.raises(UsageError, match="name a folder whose path is UTF-8 without"):
        lake(name)
