from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from fraudlake import steps, stream, tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import Lake
from tests.conftest import land_flink

pytestmark = pytest.mark.stream


def test_streams_over_what_is_there_all_come_to_their_end(lake: Callable[..., Lake], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    one = lake()
    for step in (steps.ingest, steps.refine, steps.detect):
        stream.run(one, step(one), "available-now")

    # Ten transactions and three alerts.
    done = stream.run(one, steps.aggregate(one), "available-now")
    assert {each.step: each.rows for each in done} == dict.fromkeys(
        ("account_daily", "detector_agreement", "alert_windows"), 13
    )
    assert one.read(tables.GOLD_ACCOUNT_DAILY).count() == 4
    assert one.read(tables.GOLD_DETECTOR_AGREEMENT).count() == 1
    assert one.read(tables.GOLD_ALERT_WINDOWS).count() > 0


@pytest.mark.parametrize("counts", [[None], [1], [1, None], [None, 1]], ids=["unknown", "few", "first few", "then few"])
def test_a_micro_batch_that_is_repeated_is_appended_once(lake: Callable[..., Lake], counts: list[int | None]) -> None:
    """There are two ways to write, by the number of rows: what one wrote the other must not write again."""
    one, table, count = lake(), tables.BRONZE_FILES, itertools.cycle(counts)
    schema = one.read(table).schema

    def append(path: str, batch_id: int) -> None:
        row = one.spark.createDataFrame([(path, *[None] * (len(schema) - 1))], schema)
        stream.Appender.of(one, "ingest").append(row, table, batch_id, count=next(count))

    append("first", 0)
    append("first once more", 0)
    append("second", 1)
    one.spark.sql(f"OPTIMIZE {table.name}")
    append("second once more", 1)
    append("third", 2)
    assert sorted(row["path"] for row in one.read(table).collect()) == ["first", "second", "third"]


def test_what_is_no_exception_ends_a_stream_too(lake: Callable[..., Lake], landing: Path) -> None:
    land_flink(landing, "tutorial/int96")
    one = lake()

    def panic(batch: DataFrame, batch_id: int) -> None:
        raise SystemExit("a panic")

    with pytest.raises(FraudlakeError, match=r"ingest failed: .*SystemExit: a panic"):
        stream.run(one, [dataclasses.replace(steps.ingest(one)[0], write=panic)], "available-now")
