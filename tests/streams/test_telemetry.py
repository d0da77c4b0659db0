"""Telemetry: what Spark reports of micro-batches is counted and recorded; collectors get it by HTTP."""

from __future__ import annotations

import json
import math
import shutil
import urllib.request
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import open_lake
from fraudlake.lake.local_store import LocalStore
from fraudlake.process import logs
from fraudlake.settings import Settings
from fraudlake.streams import ingest, stream, telemetry
from fraudlake_cli.output.progress import console
from tests import plain_lake
from tests.conftest import FraudlakeHere, land_flink


def report(batch: int, rows: int, milliseconds: int, **further: Any) -> Any:
    plain = {"timestamp": "2026-03-07T12:00:00.000Z", "eventTime": {}, "stateOperators": [], "sources": []}
    return SimpleNamespace(batchId=batch, numInputRows=rows, batchDuration=milliseconds, **{**plain, **further})


def samples(text: str) -> dict[tuple[str, str], float]:
    """Read OpenMetrics, which end with EOF: values by name and stream."""
    families = text_string_to_metric_families(text)
    return {(one.name, one.labels.get("stream", "")): one.value for family in families for one in family.samples}


def served(lake: str) -> tuple[telemetry.Metrics, Any]:
    """Serve metrics at a free port; return them and how to read them."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    metrics = telemetry._served(address, lake)
    request = urllib.request.Request(
        f"http://{address}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )

    def read() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            return samples(answer.read().decode())

    return metrics, read


def test_a_collector_gets_the_sums_of_the_reports() -> None:
    metrics, read = served('/a "hostile"\nlake\\')
    metrics.started("detect")
    metrics.started("refine")
    metrics.batch("detect", report(7, 100, 2000))
    watermark = {"watermark": "2026-03-07T11:59:50.000Z"}
    state, source = SimpleNamespace(numRowsTotal=16), SimpleNamespace(metrics={"numBytesOutstanding": "4096"})
    kafka = SimpleNamespace(metrics={"maxOffsetsBehindLatest": "12"})
    metrics.batch("detect", report(8, 50, 500, eventTime=watermark, stateOperators=[state, state], sources=[source]))
    metrics.batch("ingest_kafka", report(1, 5, 100, sources=[kafka]))
    metrics.ended("refine", "it broke")
    got = read()
    assert got["fraudlake_stream_rows_total", "detect"] == 150
    assert got["fraudlake_stream_batches_total", "detect"] == 2
    assert got["fraudlake_stream_batch_duration_seconds_sum", "detect"] == 2.5
    assert got["fraudlake_stream_batch_duration_seconds_count", "detect"] == 2
    assert got["fraudlake_stream_batch", "detect"] == 8
    assert got["fraudlake_stream_batch_began_timestamp_seconds", "detect"] == 1772884800
    assert got["fraudlake_stream_watermark_timestamp_seconds", "detect"] == 1772884790
    assert got["fraudlake_stream_state_rows", "detect"] == 32
    assert got["fraudlake_stream_lag_bytes", "detect"] == 4096
    assert got["fraudlake_stream_lag_messages", "ingest_kafka"] == 12
    assert (got["fraudlake_stream_running", "detect"], got["fraudlake_stream_running", "refine"]) == (1, 0)
    assert got["fraudlake_stream_failures_total", "refine"] == 1


def test_a_collector_gets_the_late_items_of_the_review(tmp_path: Path) -> None:
    store = LocalStore(Settings(lake=plain_lake.make(tmp_path / "lake")))
    now = datetime.now(UTC)
    for item, age in (("a", timedelta(days=5)), ("b", timedelta(days=3)), ("c", timedelta(0))):
        row = {"day": now.date(), "item_id": item, "kind": "drawn", "account_id": item, "built_at": now - age}
        plain_lake.fill(store.root, tables.GOLD_REVIEW_QUEUE, row)
    metrics, read = served("a lake with a review")
    metrics.follow(store)
    assert late_items(read()) == (2, pytest.approx(5 * 86400, abs=600))


def test_a_collector_gets_no_age_without_late_items_and_no_number_if_they_cannot_be_read(tmp_path: Path) -> None:
    root = plain_lake.make(tmp_path / "lake")
    metrics, read = served("a lake without a review")
    metrics.follow(LocalStore(Settings(lake=root)))
    assert late_items(read()) == (0, 0)

    shutil.rmtree(root / "tables" / "gold_review_queue")
    (root / "tables" / "gold_review_queue" / "_delta_log").mkdir(parents=True)
    (root / "tables" / "gold_review_queue" / "_delta_log" / f"{0:020}.json").write_text("broken")
    assert late_items(read()) == (0, 0)  # a minute has not passed
    metrics.follow(LocalStore(Settings(lake=root)))
    got = read()
    assert all(math.isnan(value) for value in late_items(got))
    assert got["fraudlake_info", ""] == 1


def test_a_collector_gets_the_payments_without_a_rate(tmp_path: Path) -> None:
    declared = {"columns": {"currency": "string"}, "currency": {"base": "EUR"}}
    store = LocalStore(open_lake(Settings.model_validate({"lake": tmp_path / "lake", **declared})).settings)
    silver = tables.with_declared(tables.SILVER_TRANSACTIONS, store.settings.silver_columns)
    day = date(2026, 3, 7)
    rows = {"date": day, "base_amount": 1.0}, {"date": day}, {"date": day, "currency": "XXX"}
    plain_lake.fill(store.root, silver, *rows)
    metrics, read = served("a lake of several currencies")
    metrics.follow(store)
    assert read()["fraudlake_transactions_without_rate", ""] == 1


def late_items(got: dict[tuple[str, str], float]) -> tuple[float, float]:
    return got["fraudlake_review_late_items", ""], got["fraudlake_review_oldest_late_item_seconds", ""]


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "9464", "example.org:80", "127.0.0.1:70000", "127.0.0.1"])
def test_an_address_that_others_reach_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="loopback address and a port"):
        Settings(metrics_address=address)


def test_an_address_in_use_is_one_line() -> None:
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"metrics_address {address}: .* name another port"):
            telemetry._served(address, "lake")


@pytest.fixture
def json_lines() -> Any:
    logs.use(is_json=True)
    yield
    logs.use(is_json=False)


def test_records_are_objects_with_run_stream_and_batch(json_lines: None, capsys: pytest.CaptureFixture[str]) -> None:
    records = telemetry.Records()
    records.batch("refine", report(3, 120, 1500))
    with logs.inside(stream="score", batch=4):
        logs.event("a new champion", version="2")
    records.ended("refine", "no\nspace")
    console.print("[green]✓[/] refine  120 rows", "<b>")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["run"] for line in lines} == {logs.RUN}
    first, second, third, fourth = lines
    assert {name: first[name] for name in ("message", "stream", "batch", "rows", "seconds")} == {
        "message": "micro-batch", "stream": "refine", "batch": 3, "rows": 120, "seconds": 1.5,
    }  # fmt: skip
    assert (second["stream"], second["batch"], second["version"]) == ("score", 4, "2")
    assert (third["level"], third["cause"]) == ("error", "no\nspace")
    assert (fourth["message"], fourth["level"]) == ("✓ refine  120 rows <b>", "info")


def test_text_leaves_out_what_the_commands_own_lines_say(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.Records().batch("refine", report(3, 120, 1500))
    telemetry.Records().ended("refine", "no\nspace")
    console.print("done")
    assert capsys.readouterr().err == "done\n"


def test_a_command_that_fails_ends_with_an_object(tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    done = fraudlake_here("--lake", str(tmp_path / "none"), "status", FRAUDLAKE_LOG_FORMAT="json")
    logs.use(is_json=False)
    last = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, last["level"], last["exit_code"]) == (1, "error", 1)
    assert "there is no lake" in last["message"]


@pytest.mark.stream
def test_a_stream_is_counted_and_recorded(
    lake: Any, landing: Path, json_lines: None, capsys: pytest.CaptureFixture[str]
) -> None:
    land_flink(landing, "tutorial/int96")
    metrics, read = served("a lake")
    opened = lake()
    opened.settings = opened.settings.model_copy(update={"metrics_address": "x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "_served", lambda address, name: metrics)
        stream.run(opened, ingest.streams(opened), "available-now")
    got = read()
    assert got["fraudlake_stream_batches_total", "ingest"] == 1
    assert got["fraudlake_stream_running", "ingest"] == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    said = {line["message"]: line for line in lines if line.get("stream") == "ingest"}
    assert set(said) >= {"stream started", "micro-batch", "stream ended"}
    assert said["micro-batch"]["rows"] == got["fraudlake_stream_rows_total", "ingest"]
    assert opened.store.count(tables.BRONZE_TRANSACTIONS) > 0
