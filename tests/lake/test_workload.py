"""What a local Spark is started for: the rows that are new to the streams of a command."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fraudlake import tables
from fraudlake.gold import gold_tables
from fraudlake.lake import open_lake, session, workload
from fraudlake.lake.local import LocalLake
from fraudlake.settings import Settings

pytestmark = pytest.mark.slow
HOUR = timedelta(hours=1)


@pytest.fixture
def opened(tmp_path: Path) -> LocalLake:
    lake = open_lake(Settings(lake=tmp_path / "lake"))
    assert isinstance(lake, LocalLake)
    return lake


def add_to_bronze(lake: LocalLake, rows: int) -> None:
    schema = tables.BRONZE_TRANSACTIONS.schema
    table = pa.Table.from_pylist([dict.fromkeys(schema.names)] * rows, schema)
    lake.writer(tables.BRONZE_TRANSACTIONS).write(table, "append")


def read_until(lake: LocalLake, step: str, at: datetime) -> None:
    """Leave the files of a stream whose only micro-batch began at a time."""
    for name in ("offsets", "commits"):
        file = lake.checkpoint(step).folder / name / "0"
        file.parent.mkdir(parents=True)
        file.write_text("v1\n" + json.dumps({"batchTimestampMs": at.timestamp() * 1000}))


def test_a_stream_has_to_read_what_came_after_its_latest_micro_batch_began(opened: LocalLake) -> None:
    now = datetime.now(UTC)
    add_to_bronze(opened, 7)
    read_until(opened, "refine", now - HOUR)
    read_until(opened, "detect", now + HOUR)
    assert workload.unread_rows(opened, ["refine"]) == 7
    assert workload.unread_rows(opened, ["detect"]) == 0
    assert workload.unread_rows(opened, ["refine", "detect"]) == 7
    assert workload.unread_rows(opened, ["score"]) == 7  # it has not begun
    assert workload.unread_rows(opened, []) == math.inf


def test_a_step_has_to_read_what_any_of_its_tables_lacks(opened: LocalLake) -> None:
    add_to_bronze(opened, 7)
    first, *others = gold_tables.GROUPED
    shared = opened.checkpoint(first.step)
    read_until(opened, first.step, datetime.now(UTC) + HOUR)
    shared.notes.note_also_writes([aggregate.table.name for aggregate in others[:-1]])
    assert workload.unread_rows(opened, ["aggregate"]) == 7  # as after an upgrade that brings an aggregate
    shared.notes.note_also_writes([aggregate.table.name for aggregate in others])
    assert workload.unread_rows(opened, ["aggregate"]) == 0


def test_a_landed_file_that_is_renamed_meanwhile_is_not_counted(
    opened: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(opened.settings.landing_path)
    folder.mkdir(parents=True)
    (folder / "part-0").write_bytes(bytes(200))
    monkeypatch.setattr(workload.os, "walk", lambda _: iter([(str(folder), [], [".part-0.inprogress", "part-0"])]))
    assert workload.unread_rows(opened, ["ingest"]) == 10


def test_ingest_has_to_read_files_that_came_after_its_latest_micro_batch_began(opened: LocalLake) -> None:
    file = Path(opened.settings.landing_path) / "2026-03-07--00" / "part-0"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(20_000_000))
    assert workload.unread_rows(opened, ["ingest"]) > 900_000
    read_until(opened, "ingest", datetime.now(UTC) + HOUR)
    assert workload.unread_rows(opened, ["ingest"]) == 0


def test_the_step_that_gains_most_from_the_second_compiler_decides(
    opened: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload, "unread_rows", lambda lake, steps: 3_000_000)
    assert workload.is_brief(opened, ["detect", "aggregate"])
    assert not workload.is_brief(opened, ["refine", "detect"])


@pytest.mark.parametrize(
    ("steps", "values", "options"),
    [
        (("refine",), {}, session.BRIEF_JAVA_OPTIONS),
        ((), {}, ()),
        (("refine",), {"trigger": "continuous"}, ()),
        (("ingest",), {"source": "kafka", "bootstrap_servers": "localhost:1"}, session.SELECTIVE_JAVA_OPTIONS),
    ],
)
def test_the_rows_that_a_command_has_to_read_decide_how_much_java_compiles(
    opened: LocalLake,
    monkeypatch: pytest.MonkeyPatch,
    steps: tuple[str, ...],
    values: dict[str, Any],
    options: tuple[str, ...],
) -> None:
    started = []

    def start(settings: Settings, log: Path, further_java_options: tuple[str, ...]) -> Any:
        started.append(further_java_options)
        raise OSError("enough")

    monkeypatch.setattr(session, "start", start)
    opened.settings = opened.settings.model_copy(update=values)
    opened.steps = steps
    with pytest.raises(OSError, match="enough"):
        _ = opened.session
    assert started == [options]


def test_java_options_of_the_user_come_after_those_of_a_brief_spark(tmp_path: Path) -> None:
    settings = Settings(lake=tmp_path, java_options="-XX:TieredStopAtLevel=4")
    options = session.configuration(settings, session.BRIEF_JAVA_OPTIONS)["spark.driver.extraJavaOptions"]
    assert options.index("TieredStopAtLevel=1") < options.index("TieredStopAtLevel=4")
