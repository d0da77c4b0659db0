"""Every task of every job, called as the bundle deploys it, on compute that refuses what serverless compute refuses.

The same files go through a lake on this machine; its tables are the truth for those of the workspace.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fraudlake import simulator
from tests.bundle import rendering
from tests.conftest import FLINK, FraudlakeHere
from tests.delivery.receiver import Receiver
from tests.standin import classic, workspace
from tests.standin.process import Workspace, stored
from tests.standin.workspace import CATALOG, SCHEMA

from .both import DECLARED, RULES, Both

pytestmark = [pytest.mark.stream, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def both(spark: Any, compute: Workspace, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("both")
    simulator.simulate(folder / "landed", simulator.Traffic(fraud=0.2, rate=1.0, bad=0.02), rows=1500, file_rows=900)
    shutil.copy(FLINK.parent / "bad" / "files" / "part-truncated", folder / "landed")
    taken = Both(compute, folder / "laptop", receiver)
    taken.land(folder / "landed")
    (folder / "rules.toml").write_text(RULES)
    jobs = ("rules", "define", "ingest_and_detect", "deliver", "train", "gold", "maintain", "backfill")
    for one in taken.tasks(*jobs, deliver_to="webhook", file=str(folder / "rules.toml"), columns=DECLARED):
        taken.take(*one)
    return taken


def test_the_workspaces_tables_are_the_laptops_row_for_row(both: Both) -> None:
    # Nobody decides, and no rule is in the shadow.
    assert both.differing() == {"silver_verdicts": "no rows", "silver_shadow_alerts": "no rows"}


def test_every_task_that_the_bundle_deploys_was_run(both: Both) -> None:
    deployed = {f"{job}.{task}" for job, task, _ in rendering.tasks("prod", **rendering.GIVEN)}
    assert set(both.done) == deployed - {"probe.probe"}


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
