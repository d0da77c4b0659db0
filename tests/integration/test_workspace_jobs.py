"""Every task of every job, called as the bundle deploys it, on compute that refuses what serverless compute refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fraudlake.lake import contents
from tests.bundle import rendering
from tests.chaos import truth
from tests.chaos.harness import DECLARED, LIVE_RULES, SHADOW_RULE
from tests.chaos.landing import landing_files
from tests.conftest import FLINK, FraudlakeHere
from tests.delivery.receiver import Receiver
from tests.standin import classic, workspace
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG, SCHEMA

from .both import UNDECIDED, UNFILLED, tasks

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def done(compute: Workspace, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The tasks that were run, each with its job."""
    for number, file in enumerate(landing_files(seed=1, count=8)):
        file.land(compute.landing, number)
    rules = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules.write_text(LIVE_RULES + SHADOW_RULE)
    jobs = ("define", "rules", "ingest_and_detect", "train", "gold", "deliver", "review_queue", "maintain", "backfill")
    done = []
    variables = {name.lower(): json.dumps(value) for name, value in DECLARED.items()}
    for job, task, parameters in tasks(compute, *jobs, deliver_to="webhook", file=str(rules), **variables):
        ended = compute.task(*parameters)
        assert ended["code"] == 0, f"{job}.{task}: {ended['error']}"
        done.append(f"{job}.{task}")
    received = compute.folder / truth.DELIVERED / "webhook"
    received.mkdir(parents=True)
    (received / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in receiver.events))
    return done


@pytest.mark.usefixtures("done")
def test_every_table_and_event_is_that_of_the_landed_files(compute: Workspace) -> None:
    assert truth.differences(compute.folder, landing=compute.landing) == []
    assert set(compute.rows("silver_alerts")["rule"].to_pylist()) == {
        "small_then_large",
        "likely",
        "merchant_pair",
        "dear",
        "probe",
    }
    empty = {table.name for table in contents.TABLES if table not in UNFILLED and not compute.rows(table.name).num_rows}
    assert empty == {"silver_verdicts", *(table.name for table in UNDECIDED)}


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
