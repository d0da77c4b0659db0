"""Jobs: lists the deployed jobs of the bundle with their latest runs, and starts and watches a run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.jobs import RunLifeCycleState, RunResultState

from fraudlake.errors import FraudlakeError, UsageError, first_line
from fraudlake_workspace.client import asking, pauses

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service import jobs as api

    from fraudlake.settings import Settings

PROJECT = ("project", "fraudlake")
"""The tag that every job of the bundle has."""
_ENDED = {RunLifeCycleState.TERMINATED, RunLifeCycleState.SKIPPED, RunLifeCycleState.INTERNAL_ERROR}
_FAILED = {RunResultState.FAILED, RunResultState.TIMEDOUT, RunResultState.CANCELED}
Progress = Callable[[str, str], None]
"""Called with a task's name and its state, whenever that changes."""


@dataclass(frozen=True)
class Run:
    """A run of a job: ``state`` is its result, or its life cycle state; ``error`` is the first line of its failure."""

    id: int
    state: str
    started: datetime | None
    seconds: float
    error: str | None
    url: str | None


@dataclass(frozen=True)
class Job:
    """A deployed job: ``name`` as in ``workspace run NAME``, and its latest runs, the newest first."""

    id: int
    name: str
    title: str
    target: str
    runs: list[Run]


def jobs(client: WorkspaceClient, settings: Settings, runs: int) -> list[Job]:
    """Return the deployed jobs, each with its latest ``runs``; if the settings name a lake, only the jobs of that lake.

    Raises:
        FraudlakeError: no job is deployed, or a request failed.
    """
    with asking(client, "jobs"):
        return [_job(client, job, runs) for job in _deployed(client, settings)]


def find(client: WorkspaceClient, settings: Settings, wanted: str) -> int:
    """Return the id of the deployed job whose name, title or id is ``wanted``.

    Several targets can be deployed to a workspace: if the settings name a lake, only the jobs of that lake count.

    Raises:
        UsageError: no job matches, or several do.
        FraudlakeError: nothing is deployed.
    """
    with asking(client, "jobs"):
        deployed_jobs = _deployed(client, settings)
    matches = [job for job in deployed_jobs if wanted in (str(job.job_id), _title(job), _name(job))]
    if not matches:
        names = ", ".join(sorted({_name(job) for job in deployed_jobs}))
        raise UsageError(f"there is no deployed job '{wanted}'; there are {names}")
    if len(matches) > 1:
        which = ", ".join(f"{job.job_id} ({_title(job)})" for job in matches)
        raise UsageError(f"several deployed jobs are called '{wanted}': give --catalog and --schema, or an id: {which}")
    return int(matches[0].job_id or 0)


def start(client: WorkspaceClient, job: int) -> int:
    """Start a run; return its id."""
    with asking(client, f"job {job}"):
        return int(client.jobs.run_now(job).run_id)


def wait(client: WorkspaceClient, run: int, timeout_seconds: float, progress: Progress) -> Run:
    """Watch a run to its end.

    Raises:
        FraudlakeError: the run failed, or has not ended in time and goes on.
    """
    states: dict[str, str] = {}
    deadline = time.monotonic() + timeout_seconds
    for pause in pauses(10.0):
        with asking(client, f"run {run}"):
            now = client.jobs.get_run(run)
        for task in now.tasks or []:
            state = _state(task.state)
            if states.get(str(task.task_key)) != state:
                states[str(task.task_key)] = state
                progress(str(task.task_key), state)
        if now.state is not None and now.state.life_cycle_state in _ENDED:
            break
        if time.monotonic() > deadline:
            raise FraudlakeError(
                f"run {run} has not ended after {timeout_seconds:.0f} s; it continues: {now.run_page_url}"
            )
        time.sleep(pause)
    ended = _run(client, now)
    if ended.state != RunResultState.SUCCESS.value.lower():
        raise FraudlakeError(f"run {run} {ended.state}: {ended.error or 'no reason given'}; see {ended.url}")
    return ended


def output(client: WorkspaceClient, run: int) -> str:
    """Return standard output and error of a run's tasks, of each the last 5 MB (Jobs API, "Get run output").

    Raises:
        FraudlakeError: a request failed.
    """
    with asking(client, f"output of run {run}"):
        tasks = client.jobs.get_run(run).tasks or []
        return "\n".join(client.jobs.get_run_output(int(task.run_id or 0)).logs or "" for task in tasks)


def deployed(client: WorkspaceClient, settings: Settings) -> list[api.BaseJob]:
    """Return the deployed jobs, only those of the lake if the settings name one; empty before the first deploy."""
    tag, value = PROJECT
    lake = {name for name in (settings.catalog, settings.schema_name) if name}
    return [
        job
        for job in client.jobs.list(expand_tasks=True)
        if job.settings and (job.settings.tags or {}).get(tag) == value and lake <= set(parameters(job))
    ]


def parameters(job: api.BaseJob) -> list[str]:
    """Return the parameters of a job's tasks."""
    tasks = (job.settings.tasks if job.settings else None) or []
    wheels = [task.python_wheel_task for task in tasks]
    return [parameter for wheel in wheels if wheel for parameter in wheel.parameters or []]


def parameter(job: api.BaseJob, name: str) -> str | None:
    """Return the value of a job's parameter, such as ``--source``; None if no task has it."""
    values = parameters(job)
    return values[values.index(name) + 1] if name in values else None


def _deployed(client: WorkspaceClient, settings: Settings) -> list[api.BaseJob]:
    jobs = deployed(client, settings)
    if not jobs:
        lake = {name for name in (settings.catalog, settings.schema_name) if name}
        which = f" for {settings.catalog}.{settings.schema_name}" if lake else ""
        raise FraudlakeError(
            f"no job of this bundle is deployed here{which}, or none that you may see: databricks bundle deploy"
        )
    return jobs


def _title(job: api.BaseJob) -> str:
    return str(job.settings and job.settings.name)


def _name(job: api.BaseJob) -> str:
    """Return the name in the bundle: ingest_and_detect for ``[dev jane] fraudlake ingest and detect``."""
    bare = re.sub(r"^\[[^]]*\]\s*", "", _title(job)).removeprefix("fraudlake ")
    return re.sub(r"\W+", "_", bare).strip("_")


def _job(client: WorkspaceClient, job: api.BaseJob, runs: int) -> Job:
    latest: list[Run] = []
    for run in client.jobs.list_runs(job_id=job.job_id, limit=max(runs, 1), expand_tasks=True):
        if len(latest) == runs:
            break
        latest.append(_run(client, run))
    tags = (job.settings.tags if job.settings else None) or {}
    return Job(int(job.job_id or 0), _name(job), _title(job), tags.get("target", ""), latest)


def _run(client: WorkspaceClient, run: api.BaseRun | api.Run) -> Run:
    until = run.end_time or time.time_ns() // 1_000_000
    return Run(
        id=int(run.run_id or 0),
        state=_state(run.state),
        started=datetime.fromtimestamp(run.start_time / 1000, UTC) if run.start_time else None,
        seconds=(until - run.start_time) / 1000 if run.start_time else 0.0,
        error=_error(client, run) if run.state and _has_failed(run.state) else None,
        url=run.run_page_url,
    )


def _state(state: api.RunState | None) -> str:
    shown = (state.result_state or state.life_cycle_state) if state else None
    return shown.value.lower() if shown else "unknown"


def _has_failed(state: api.RunState) -> bool:
    return (
        state.result_state not in (None, RunResultState.SUCCESS)
        or state.life_cycle_state is RunLifeCycleState.INTERNAL_ERROR
    )


def _error(client: WorkspaceClient, run: api.BaseRun | api.Run) -> str | None:
    """Return the first line of the error of the first task that failed."""
    failed = [task for task in run.tasks or [] if task.state and task.state.result_state in _FAILED]
    for task in sorted(failed, key=lambda task: task.start_time or 0)[:1]:
        try:
            output = client.jobs.get_run_output(int(task.run_id or 0))
        except DatabricksError:  # the output may be deleted or forbidden; the state's message is left
            break
        if output.error:
            return f"{task.task_key}: {first_line(output.error)}"
    message = run.state.state_message if run.state else None
    return first_line(message) if message else None
