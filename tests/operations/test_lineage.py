"""Lineage: what an alert is traced back to is what the landed files say, read here without the package."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake.spark_store import SparkStore
from fraudlake.operations import lineage, maintenance
from fraudlake.streams import detect, ingest, refine, stream
from fraudlake.text.sql_text import literal
from fraudlake_tools import simulator
from tests import plain_lake
from tests.conftest import run
from tests.test_cli import without_java

pytestmark = pytest.mark.stream

NOON = datetime(2026, 3, 7, 12, tzinfo=UTC)


def test_every_alert_is_rebuilt_from_the_bytes_of_flinks_files(main_job: Any) -> None:
    alerts = main_job.store.query(f"SELECT * FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS).to_pylist()
    named = defaultdict(list)
    for alert, origins in zip(alerts, lineage.origins(main_job, alerts), strict=True):
        for origin, part in zip(origins, alert["evidence"], strict=True):
            expected = (alert["account_id"], part["timestamp"].timestamp(), part["amount"])
            named[origin.landed["path"]].append((origin.landed["row"], expected))
    landed = []
    for path, rows in named.items():
        file = pq.read_table(path, coerce_int96_timestamp_unit="us").to_pylist()
        landed += [
            ((row["accountId"], row["dt"].replace(tzinfo=UTC).timestamp(), row["amount"]), expected)
            for row, expected in ((file[number], expected) for number, expected in rows)
        ]
    assert len(landed) == 2 * 2776
    assert not [pair for pair in landed if pair[0] != pair[1]]


def test_an_alert_is_explained_without_java(main_job: Any) -> None:
    (alert,) = main_job.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} WHERE account_id = '2' AND timestamp < TIMESTAMP '2000-01-01'",
        tables.SILVER_ALERTS,
    ).to_pylist()

    shown = without_java(main_job.root, "explain", alert["alert_id"])

    assert shown["rule"] == {
        "kind": "small_then_large",
        "name": "small_then_large",
        "small_below": 1.0,
        "large_above": 500.0,
        "within": "60 s",
        "version": 1,
        "status": "live",
    }
    assert shown["alert"]["explanation"] == alert["explanation"]
    # Rows 1 and 2 of Flink's ten transactions, of which the second is its alert: fixtures/README.md.
    small, large = shown["transactions"]
    assert [(part["variable"], part["transaction"]["label"]) for part in (small, large)] == [
        ("SMALL", False),
        ("LARGE", True),
    ]
    path = Path(large["landed"]["path"])
    assert pq.read_table(path)["amount"][large["landed"]["row"]].as_py() == 600.0
    assert path == main_job.root / "landing" / large["landed"]["file"]


def test_a_person_reads_where_an_alert_comes_from(main_job: Any, capfd: pytest.CaptureFixture[str]) -> None:
    (alert,) = main_job.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} ORDER BY timestamp LIMIT 1", tables.SILVER_ALERTS
    ).to_pylist()
    run(main_job.root, "explain", alert["alert_id"])
    shown = capfd.readouterr().out
    assert "Account 2: SMALL 0.50" in shown
    assert "small_then_large: kind small_then_large, small_below 1.0, large_above 500.0, within 60 s" in shown
    assert shown.count("file tutorial_int96/part-") == shown.count(" row ") == 2


def test_an_unknown_alert_is_wrong_use(main_job: Any) -> None:
    with pytest.raises(UsageError, match="it's: silver_alerts has no such alert_id"):
        run(main_job.root, "explain", "it's")


def first_version_with(table: Path, condition: ds.Expression) -> int:
    """The first commit that added a file with such a row, by the table's log and files."""
    for log in sorted((table / "_delta_log").glob("*.json")):
        added = [json.loads(line).get("add") for line in log.read_text().splitlines()]
        files = [str(table / add["path"]) for add in added if add]
        if files and ds.dataset(files, partitioning=None).count_rows(filter=condition):
            return int(log.stem)
    raise AssertionError("no version has it")


@pytest.mark.long
def test_the_commits_that_took_a_row_are_found_behind_a_compaction(lake: Callable[..., Any], landing: Path) -> None:
    simulator.simulate(landing, simulator.Traffic(accounts=5, fraud=0.1, seed=4), rows=300, file_rows=60)
    opened = lake(max_files_per_trigger=1)
    for step in (ingest.streams, refine.streams, detect.streams):
        stream.run(opened, step(opened), "available-now")
    alert = opened.store.query(
        f"SELECT * FROM {tables.SILVER_ALERTS.name} ORDER BY timestamp DESC LIMIT 1", tables.SILVER_ALERTS
    ).to_pylist()[0]
    assert "bronze_transactions" in maintenance.optimize(opened)

    shown = lineage.explain(opened, alert["alert_id"])

    large = shown.transactions[-1]
    file, row = large.landed["file"], large.landed["row"]
    bronze = first_version_with(
        opened.root / "tables" / "bronze_transactions",
        (ds.field("_source_file") == file) & (ds.field("_source_row") == row),
    )
    silver = first_version_with(
        opened.root / "tables" / "silver_transactions", ds.field("transaction_id") == alert["transaction_id"]
    )
    assert bronze > 1
    assert (large.taken["bronze"].version, large.taken["bronze"].is_first) == (bronze, True)
    assert (large.taken["silver"].version, large.taken["silver"].is_first) == (silver, True)


@pytest.mark.long
def test_a_message_is_named_by_topic_partition_and_offset(lake: Callable[..., Any]) -> None:
    opened = lake()
    common = {"dt": NOON, "accountId": "7", "alert": False, "_topic": "it's", "_partition": 3, "_ingested_at": NOON}
    rows = [{**common, "date": NOON.date(), "amount": amount, "_offset": at} for at, amount in ((41, 0.5), (44, 600.0))]
    plain_lake.fill(opened.root, tables.BRONZE_TRANSACTIONS, *rows)
    for step in (refine.streams, detect.streams):
        stream.run(opened, step(opened), "available-now")
    (alert,) = opened.store.query(f"SELECT alert_id FROM {tables.SILVER_ALERTS.name}", tables.SILVER_ALERTS).to_pylist()

    shown = lineage.explain(opened, alert["alert_id"])

    small, large = shown.transactions
    assert small.landed == {"topic": "it's", "partition": 3, "offset": 41}
    assert large.landed == {"topic": "it's", "partition": 3, "offset": 44}
    assert large.values["amount"] == 600.0


def test_a_text_is_the_same_to_both_engines(lake: Callable[..., Any]) -> None:
    texts = ("", "plain", "it's", "a\\b", "\\'", "x' OR '1'='1", 'ü\n\t"`;--', "${user.dir}")
    named = dict(zip("abcdefgh", texts, strict=True))
    columns = ", ".join(f"{literal(text)} AS {name}" for name, text in named.items())
    opened = lake()
    plain_lake.fill(opened.root, tables.BRONZE_FILES, {"path": "x"})
    for store in (opened.store, SparkStore(opened)):
        answer = store.query(f"SELECT {columns} FROM {tables.BRONZE_FILES.name}", tables.BRONZE_FILES)
        assert answer.to_pylist() == [named]
