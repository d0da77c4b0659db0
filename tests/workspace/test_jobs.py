from __future__ import annotations

import json

from tests.workspace.conftest import Command
from tests.workspace.server import Workspace, a_run, a_task

FAILED = {"life_cycle_state": "TERMINATED", "result_state": "FAILED", "state_message": "Task ingest failed"}
DONE = {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS"}


def test_deployed_jobs_are_listed_with_their_last_runs_and_why_one_failed(
    fraudlake: Command, workspace: Workspace
) -> None:
    workspace.runs = [a_run(2, 11, FAILED), a_run(1, 11, DONE), a_run(3, 7, DONE)]
    workspace.outputs[9002] = "fraudlake: nothing has landed in /Volumes\nTraceback"
    code, out, _ = fraudlake("jobs", "--runs", "2")
    assert code == 0
    assert out.splitlines() == [
        "ingest_and_detect 11 [dev jane] fraudlake ingest and detect",
        "  failed     2026-03-07 00:00       90 s  ingest: fraudlake: nothing has landed in /Volumes",
        "  success    2026-03-07 00:00       90 s",
    ]


def test_a_failure_without_an_output_is_reported_by_its_state(fraudlake: Command, workspace: Workspace) -> None:
    workspace.runs = [a_run(2, 11, FAILED)]
    workspace.fail("get-output", 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "expired"})
    _, out, _ = fraudlake("jobs", json=True)
    (job,) = json.loads(out)["jobs"]
    assert (job["name"], job["target"]) == ("ingest_and_detect", "dev")
    assert [run["error"] for run in job["runs"]] == ["Task ingest failed"]


def test_nothing_deployed_is_an_error(fraudlake: Command, workspace: Workspace) -> None:
    del workspace.jobs[1]
    code, _, err = fraudlake("jobs")
    assert code == 1
    assert "no job of this bundle is deployed here" in err


def test_a_run_is_watched_to_its_end(fraudlake: Command, workspace: Workspace) -> None:
    code, out, err = fraudlake("run", "ingest_and_detect", "--wait")
    assert (code, out) == (0, f"run 500 succeeded in 90 s: {workspace.host}/run/500\n")
    assert [line.split() for line in err.splitlines()[-2:]] == [["ingest", "running"], ["ingest", "success"]]


def test_a_run_is_only_started_without_wait(fraudlake: Command, workspace: Workspace) -> None:
    assert fraudlake("run", "11", json=True)[:2] == (0, '{"run": 500}\n')
    assert workspace.runs[0]["state"] == {"life_cycle_state": "PENDING"}


def test_a_run_that_fails_gives_its_first_line_and_exit_code_1(fraudlake: Command, workspace: Workspace) -> None:
    workspace.fails_with = "fraudlake: refine failed: out of memory\n  at Frame"
    code, _, err = fraudlake("run", "ingest_and_detect", "--wait")
    assert code == 1
    assert err.splitlines()[-1] == (
        f"fraudlake: run 500 failed: ingest: fraudlake: refine failed: out of memory; see {workspace.host}/run/500"
    )


def test_a_run_that_takes_too_long_goes_on(fraudlake: Command, workspace: Workspace) -> None:
    code, _, err = fraudlake("run", "ingest_and_detect", "--wait", "--timeout", "0")
    assert code == 1
    assert "run 500 has not ended after 0 s; it continues" in err


def test_an_unknown_or_ambiguous_job_is_wrong_use(fraudlake: Command, workspace: Workspace) -> None:
    code, _, err = fraudlake("run", "trane")
    assert code == 2
    assert "there is no deployed job 'trane'; there are ingest_and_detect" in err
    workspace.jobs.append({"job_id": 12, "settings": {**workspace.jobs[1]["settings"], "name": "ingest_and_detect"}})
    code, _, err = fraudlake("run", "ingest_and_detect")
    assert code == 2
    assert "or an id: 11 ([dev jane] fraudlake ingest and detect), 12 (ingest_and_detect)" in err


def test_of_several_targets_that_one_counts_whose_lake_is_named(fraudlake: Command, workspace: Workspace) -> None:
    mine = workspace.jobs[1]["settings"]
    theirs = {**mine, "name": "[staging] fraudlake ingest and detect", "tasks": [a_task("main", "staging_fraud")]}
    workspace.jobs.append({"job_id": 12, "settings": theirs})
    assert fraudlake("run", "ingest_and_detect")[0] == 0
    assert [run["job_id"] for run in workspace.runs] == [11]
    code, out, _ = fraudlake("jobs", json=True, schema="staging_fraud")
    assert (code, [job["id"] for job in json.loads(out)["jobs"]]) == (0, [12])
