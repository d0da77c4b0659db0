"""Every task of every job, called as the bundle deploys it, on compute that refuses what serverless compute refuses."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fraudlake.lake import contents
from tests.bundle import rendering
from tests.chaos import truth
from tests.chaos.harness import LIVE_RULES, SHADOW_RULE
from tests.chaos.landing import landing_files
from tests.conftest import FLINK, FraudlakeHere
from tests.delivery.receiver import Receiver
from tests.standin import classic, workspace
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG, SCHEMA

from .both import DECLARED, UNFILLED, tasks

FEATURE = {"name": "merchant_count", "entity": "merchant", "aggregate": "count", "window": "3650 days"}

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def done(compute: Workspace, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tasks that were run, each with its job."""
    for number, file in enumerate(landing_files(seed=1, count=8)):
        file.land(compute.landing, number)
        if file.rows:
            path = compute.landing / file.name
            merchants = pa.array([f"m{row % 7}" for row in range(len(file.rows))])
            pq.write_table(pq.read_table(path).append_column("merchantId", merchants), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(LIVE_RULES + SHADOW_RULE)
    jobs = ("rules", "define", "ingest_and_detect", "deliver", "train", "gold", "maintain", "backfill")
    done = []
    variables = {"columns": DECLARED, "entities": '{"merchant": "merchant_id"}', "features": json.dumps([FEATURE])}
    for job, task, parameters in tasks(compute, *jobs, deliver_to="webhook", file=str(rules), **variables):
        ended = compute.task(*parameters)
        assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"
        done.append(f"{job}.{task}")
    received = compute.folder / truth.DELIVERED / "webhook"
    received.mkdir(parents=True)
    (received / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in receiver.events))
    return done


@pytest.mark.usefixtures("done")
def test_a_feature_by_entity_counts_the_merchants_payments_before(compute: Workspace) -> None:
    silver = compute.rows("silver_transactions").select(["transaction_id", "merchant_id"]).to_pandas()
    scored = compute.rows("gold_fraud_predictions").select(["transaction_id", "merchant_count"]).to_pandas()
    joined = silver.merge(scored, on="transaction_id", validate="one_to_one")
    assert len(joined) == len(silver)
    assert joined["merchant_id"].nunique() == 7
    for _, counts in joined.groupby("merchant_id")["merchant_count"]:
        assert sorted(counts) == [*range(len(counts))]


@pytest.mark.usefixtures("done")
def test_every_table_and_event_is_that_of_the_landed_files(compute: Workspace) -> None:
    assert truth.differences(compute.folder, landing=compute.landing) == []
    assert "merchant_id" in compute.rows("silver_transactions").column_names
    empty = {table.name for table in contents.TABLES if table not in UNFILLED and not compute.rows(table.name).num_rows}
    assert empty == {"silver_verdicts"}  # nobody decides


def test_every_task_that_the_bundle_deploys_was_run(done: list[str]) -> None:
    deployed = {f"{job}.{task}" for job, task, _ in rendering.tasks("prod", **rendering.GIVEN)}
    assert set(done) == deployed - {"probe.probe"}


@pytest.mark.long
def test_the_continuous_job_runs_on_classic_compute(spark: Any, tmp_path: Path, fraudlake_here: FraudlakeHere) -> None:
    landing = workspace.volumes(tmp_path) / "landing"
    shutil.copytree(FLINK / "tutorial" / "int96", landing / "tutorial")
    given = {**rendering.GIVEN, "catalog": CATALOG, "schema": SCHEMA, "landing": str(landing)}
    job = "ingest_and_detect_continuous"
    tasks = {task: parameters for key, task, parameters in rendering.tasks("prod", "aws", **given) if key == job}
    ends = {
        "ingest": ("bronze_transactions", 10),
        "refine": ("silver_transactions", 10),
        "detect": ("silver_alerts", 3),
    }
    assert set(tasks) == set(ends)

    with classic.cluster(spark, tmp_path):
        for task, (table, rows) in ends.items():
            with classic.stopped_at(tmp_path / "tables" / table, rows):
                ended = fraudlake_here(*tasks[task])
            assert ended.returncode == 143, ended.stderr
        alerts = stored(tmp_path / "tables" / "silver_alerts").sort_by("timestamp")

    assert alerts["account_id"].to_pylist() == ["2", "4", "3"]
