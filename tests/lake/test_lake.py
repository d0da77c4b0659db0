from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fraudlake import simulator, steps, tables
from fraudlake.errors import UsageError
from fraudlake.lake import local
from fraudlake.streaming import stream
from tests.conftest import land_flink
from tests.oracle import Row
from tests.transactions import MARCH_7, SECOND, land

pytestmark = pytest.mark.stream


def test_auto_compaction_of_small_files_changes_no_row(lake: Any) -> None:
    opened = lake()
    opened.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    for i in range(5):
        land(opened, [Row(str(i), MARCH_7 + i * SECOND, 20.0, position=i)])
    operations = opened.spark.sql("DESCRIBE HISTORY silver_transactions").select("operation").collect()
    assert "OPTIMIZE" in {row["operation"] for row in operations}
    assert opened.spark.sql("DESCRIBE DETAIL silver_transactions").first()["numFiles"] < 5
    assert sorted(row["position"] for row in opened.read(tables.SILVER_TRANSACTIONS).collect()) == [0, 1, 2, 3, 4]


def test_landed_files_in_small_commits_are_compacted_automatically(
    lake: Any, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_COMPACT_EVERY", 4)
    simulator.simulate(landing, simulator.Traffic(), rows=50, file_rows=10)
    opened = lake(max_files_per_trigger=1)
    stream.run(opened, steps.ingest(opened), "available-now")
    operations = opened.spark.sql("DESCRIBE HISTORY bronze_transactions").select("operation").collect()
    assert [row["operation"] for row in operations].count("OPTIMIZE") == 1
    assert opened.spark.sql("DESCRIBE DETAIL bronze_transactions").first()["numFiles"] == 2
    stream.run(opened, steps.refine(opened), "available-now")
    assert opened.read(tables.BRONZE_TRANSACTIONS).distinct().count() == 50
    assert opened.read(tables.SILVER_TRANSACTIONS).count() == 50


@pytest.mark.parametrize("name", ["a b", "e#f", "{y}", "hü?*", "k:l", "~m", "s3:x"])
def test_a_lake_may_be_in_a_folder_of_any_name(lake: Any, tmp_path: Path, name: str) -> None:
    land_flink(tmp_path / name / "landing", "tutorial/int96")
    opened = lake(name)
    stream.run(opened, steps.ingest(opened), "available-now")
    assert opened.read(tables.BRONZE_TRANSACTIONS).count() == 10
    assert opened.rows(tables.BRONZE_FILES).num_rows == 1
    assert len(list((tmp_path / name / "tables" / "bronze_files").glob("*.parquet"))) == 1


@pytest.mark.parametrize("name", ["a[1]", "b%20", "c|d"])
def test_a_lake_is_refused_in_a_folder_in_which_no_table_can_be_opened(lake: Any, name: str) -> None:
    with pytest.raises(UsageError, match="holds none of"):
        lake(name)
