from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fraudlake.lake import conflict

pytestmark = pytest.mark.stream


def appear(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} never came"
        time.sleep(0.05)


def test_a_merge_that_conflicts_with_optimize_is_retried(spark: Any, tmp_path: Path) -> None:
    session = spark.newSession()
    table = f"delta.`{tmp_path}/table`"
    for _ in range(2):  # two files, for OPTIMIZE to make one of
        session.range(10).coalesce(1).write.format("delta").mode("append").save(str(tmp_path / "table"))
    reading, go = tmp_path / "reading", tmp_path / "go"

    def slow(batches: Any) -> Any:
        reading.touch()
        appear(go)
        yield from batches

    session.range(5, 6, 1, 1).mapInPandas(slow, "id long").createOrReplaceTempView("gone")
    attempts = []

    def merge() -> None:
        attempts.append(1)
        session.sql(f"MERGE INTO {table} t USING gone ON t.id = gone.id WHEN MATCHED THEN DELETE")

    def overtake() -> None:
        appear(reading)
        session.sql(f"OPTIMIZE {table}")
        go.touch()

    overtaking = threading.Thread(target=overtake)
    overtaking.start()
    conflict.retried(merge)
    overtaking.join()
    assert len(attempts) == 2
    assert session.sql(f"SELECT * FROM {table}").count() == 18


def test_another_failure_is_not_retried(spark: Any) -> None:
    attempts = []

    def fail() -> None:
        attempts.append(1)
        spark.sql("SELECT * FROM there_is_no_such_table")

    with pytest.raises(Exception, match="there_is_no_such_table"):
        conflict.retried(fail)
    assert len(attempts) == 1
