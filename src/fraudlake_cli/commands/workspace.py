"""Commands for a Databricks workspace: check, jobs, run, smoke, probe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.process.stop import StoppedError
from fraudlake.settings import Settings
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.output.progress import console, output

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake_tools.probe.probe import Answer
    from fraudlake_workspace.jobs import Job, Run


_COLOURS = {"success": "green", "failed": "red", "timedout": "red", "internal_error": "red"}


@cli.group(example="fraudlake --catalog main --schema fraud workspace check")
@click.option("--profile", metavar="NAME", help="Profile of ~/.databrickscfg.  [default: DATABRICKS_* or DEFAULT]")
@click.option("--warehouse", metavar="NAME", help="Name or id of the SQL warehouse.  [default: one that runs, or any]")
@click.pass_context
def workspace(context: click.Context, profile: str | None, warehouse: str | None) -> None:
    """Check and run a deployment in a Databricks workspace: rights, jobs, a run, a probe, a smoke test.

    Works from a laptop or from CI, through the workspace's API, without Spark. Needs: the credentials of 'databricks
    auth login', or DATABRICKS_HOST and DATABRICKS_TOKEN.
    """
    context.obj = _Workspace(context.obj, profile, warehouse)


@dataclass(frozen=True)
class _Workspace:
    """The options that come before a command of ``workspace``."""

    app: App
    profile: str | None
    warehouse: str | None

    def connect(self) -> WorkspaceClient:
        from fraudlake_workspace import client

        return client.connect(self.profile)

    def settings(self, **flags: object) -> Settings:
        settings = self.app.settings(**flags)
        if not settings.is_in_workspace:
            raise UsageError("no lake is named: give --catalog and --schema")
        return settings


@workspace.command(example="fraudlake --catalog main --schema fraud workspace check")
@click.option(
    "--service-principal", metavar="ID", help="Also check the rights of this application id, as which jobs run."
)
@click.option(
    "--group", "groups", metavar="NAME", multiple=True, help="Also check whether this group can be granted rights."
)
@options("landing", "checkpoints", "kafka_secret")
@click.pass_obj
def check(target: _Workspace, /, service_principal: str | None, groups: tuple[str, ...], **flags: str | None) -> None:
    """Check whether you may use catalog, schema, volumes, warehouse and secret, and show what to grant.

    Reads the workspace; writes one small file into the volume of the checkpoints and removes it. Exit code 1 if
    something is missing.
    """
    from fraudlake_workspace.check import check as checks_of

    wanted = target.settings(**flags)
    results = []
    for result in checks_of(target.connect(), wanted, target.warehouse, service_principal, groups):
        results.append(result)
        if not target.app.json:
            mark, remedy = ("[green]✓[/]", "") if result.ok else ("[red]✗[/]", f"\n  {escape(result.remedy or '')}")
            output.print(f"{mark} {escape(result.what)}: {escape(result.seen)}{remedy}", soft_wrap=True)
    ok = all(result.ok for result in results)
    target.app.show({"ok": ok, "checks": [asdict(result) for result in results]})
    if not ok:
        sys.exit(1)


@workspace.command("jobs", example="fraudlake --catalog main --schema fraud workspace jobs --runs 5")
@click.option("--runs", type=click.IntRange(min=0, max=20), default=3, show_default=True, help="Runs for each job.")
@click.pass_obj
def jobs_(target: _Workspace, /, runs: int) -> None:
    """List the deployed jobs with their last runs: state, duration, and the error of failed runs."""
    from fraudlake_workspace import jobs

    deployed = jobs.jobs(target.connect(), target.app.settings(), runs)
    target.app.show({"jobs": [asdict(job) for job in deployed]}, lambda: _print_jobs(deployed))


def _print_jobs(deployed: Sequence[Job]) -> None:
    for job in deployed:
        output.print(f"[bold]{escape(job.name)}[/] {job.id} {escape(job.title)}", soft_wrap=True)
        for run in job.runs:
            colour = _COLOURS.get(run.state, "default")
            when = f"{run.started:%Y-%m-%d %H:%M}" if run.started else "not started"
            error = f"  {escape(run.error)}" if run.error else ""
            output.print(f"  [{colour}]{run.state:<10}[/] {when} {run.seconds:8.0f} s{error}", soft_wrap=True)


@workspace.command("run", example="fraudlake --catalog main --schema fraud workspace run ingest_and_detect --wait")
@click.argument("job")
@click.option("--wait", "is_waiting", is_flag=True, help="Watch the run to its end; exit code 1 if it fails.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait at most.")
@click.pass_obj
def run_(target: _Workspace, /, job: str, is_waiting: bool, timeout: float) -> None:
    """Start a deployed JOB: its name (such as ingest_and_detect) or its id."""
    from fraudlake_workspace import jobs

    client = target.connect()
    started = jobs.start(client, jobs.find(client, target.app.settings(), job))
    if not is_waiting:
        target.app.say({"run": started}, f"run {started} has started")
        return
    ended = _watched(client, started, timeout)
    target.app.say({"run": started, **asdict(ended)}, f"run {started} succeeded in {ended.seconds:.0f} s: {ended.url}")


@workspace.command("smoke", example="fraudlake --catalog main --schema fraud workspace smoke")
@click.option("--job", default="ingest_and_detect", show_default=True, help="The job to run.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait for it at most.")
@options("landing")
@click.pass_obj
def smoke_(target: _Workspace, /, job: str, timeout: float, **flags: str | None) -> None:
    """Land the ten transactions of Flink's tutorial, run the job, and expect alerts for accounts 2, 4 and 3.

    Writes one file into the landing folder, with separate accounts, and removes it and its rows afterwards.
    """
    from fraudlake_tools import smoke as smoking
    from fraudlake_workspace import jobs
    from fraudlake_workspace.sql import Sql, warehouse

    wanted = target.settings(**flags)
    client = target.connect()
    job_id = jobs.find(client, wanted, job)
    sql = Sql(client, str(warehouse(client, target.warehouse).id), str(wanted.catalog), str(wanted.schema_name))
    smoke = smoking.Smoke.new()
    ended = smoking.smoke(client, wanted, sql, lambda: _watched(client, jobs.start(client, job_id), timeout), smoke)
    text = f"alerts for accounts {', '.join(smoking.EXPECTED)}, as in Flink's tutorial; cleaned up. {ended.url}"
    target.app.say({"alerts": smoking.EXPECTED, "run": ended.id}, text)


@workspace.command("probe", example="fraudlake --catalog main --schema fraud workspace probe")
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds to wait for the job at most.")
@click.option("--job", default="probe", show_default=True, help="The job to run: probe, or probe_cluster.")
@click.option(
    "--receiver", metavar="HOST:PORT", help="In the workspace: also ask whether micro-batches reach this receiver."
)
@options("checkpoints", "model_name")
@click.pass_obj
def probe_(target: _Workspace, /, timeout: float, job: str, receiver: str | None, **flags: str | None) -> None:
    """Check each assumption of the jobs about the workspace, one line each, with the remedy if it fails.

    Inside the workspace it checks the compute it runs on. Outside it runs the deployed job 'probe', which takes about
    two minutes. Creates temporary tables and a folder, and removes them. Exit code 1 if something will not work.
    """
    from fraudlake_tools.probe import probe
    from fraudlake_workspace import jobs

    wanted = target.settings(**flags)
    if receiver and not re.fullmatch(r"\S+:\d{1,5}", receiver):
        raise UsageError(f"--receiver {receiver}: must be HOST:PORT, such as alerts.example.com:443")
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        from fraudlake.lake.workspace import compute_session

        answers = []
        for answer in probe.ask(compute_session(), wanted, receiver or None):
            answers.append(answer)
            # With --json these lines show the progress on the page of the job's run.
            _show(console if target.app.json else output, answer)
    else:
        client = target.connect()
        started = jobs.start(client, jobs.find(client, wanted, job))
        answers = _answers_of(client, started, timeout)
        for answer in [] if target.app.json else answers:
            _show(output, answer)
    target.app.show(probe.as_dict(answers))
    probe.require(answers)


def _answers_of(client: WorkspaceClient, run: int, timeout: float) -> list[Answer]:
    """Wait for a run of the probe's job, and return its answers, which a failed run has usually printed, too."""
    from fraudlake_tools.probe import probe

    try:
        _watched(client, run, timeout)
    except FraudlakeError as failure:
        try:
            return probe.asked_by_job(client, run)
        except FraudlakeError:
            raise failure from None
    return probe.asked_by_job(client, run)


def _show(console: Console, answer: Answer) -> None:
    mark = "[green]✓[/]" if answer.ok else "[red]✗[/]" if answer.matters else "[yellow]![/]"
    remedy = f"\n  {escape(answer.remedy)}" if answer.remedy else ""
    console.print(f"{mark} {escape(answer.question)}: {escape(answer.seen)}{remedy}", soft_wrap=True)


def _watched(client: WorkspaceClient, run: int, timeout: float) -> Run:
    from fraudlake_workspace import jobs

    try:
        with console.status(f"run {run}"):
            return jobs.wait(client, run, timeout, lambda task, state: console.print(f"  {task:<20} {state}"))
    except StoppedError as stopped:
        stopped.then = f"run {run} continues in the workspace"
        raise
