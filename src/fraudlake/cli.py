"""The command line: ``fraudlake COMMAND`` runs one step of the lake, or all of them in order."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape

from fraudlake import __version__, settings
from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.settings import Settings

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.lake import Lake
    from fraudlake.streaming.stream import Done, Stream
    from fraudlake.workspace.jobs import Run
    from fraudlake.workspace.probe import Answer

# Progress goes to standard error; standard output is for what was asked for.
_progress = Console(stderr=True, highlight=False)
_output = Console(highlight=False)
_STREAMING = ("trigger", "interval")
_QUALITY = ("timestamp_floor", "max_ahead", "warn")
_KAFKA = (
    "source",
    "bootstrap_servers",
    "topic",
    "starting_offsets",
    "max_offsets_per_trigger",
    "fail_on_data_loss",
    "kafka_secret",
)
_MODEL = ("model_name", "experiment")
_CLEARLY = {"success": "green", "failed": "red", "timedout": "red", "internal_error": "red"}
_SENTENCE = 500
"""Characters that the first sentence of a command's help may have."""
_RULES = ("small_below", "large_above", "within")


@dataclass(frozen=True)
class _App:
    """The options that stand before the command."""

    lake: Path | None
    catalog: str | None
    schema: str | None
    config: Path | None
    json: bool

    def settings(self, **flags: object) -> Settings:
        return settings.load(self.config, lake=self.lake, catalog=self.catalog, schema_name=self.schema, **flags)

    def open(self, **flags: object) -> Lake:
        """Open the lake, making what is missing."""
        from fraudlake.lake import Lake

        wanted = self.settings(**flags)
        with _progress.status("starting Spark"):
            return Lake(wanted)

    def open_existing(self, **flags: object) -> Lake:
        """Open the lake to read it: it must be there, and nothing is made."""
        from fraudlake.lake import Lake

        wanted = self.settings(**flags)
        with _progress.status("opening the lake"):
            return Lake(wanted, must_exist=True)

    def say(self, result: dict[str, Any], text: str) -> None:
        """Print the result: one JSON object, or a line for a person."""
        click.echo(json.dumps(result, default=str) if self.json else text)


def _options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for settings; their values are checked where all settings are."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(names):
            field = Settings.model_fields[name]
            command = click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", help=field.description)(
                command
            )
        return command

    return decorate


class _Commands(click.Group):
    """A group whose help lists its commands with a whole sentence each; click cuts off what is longer than a line."""

    group_class = type  # the groups within it, too

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(_SENTENCE)) for name, one in commands if one])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lake", type=click.Path(path_type=Path), help="Folder of the lake.  [default: ./lake]")
@click.option("--catalog", metavar="NAME", help="Catalog of a lake in a Databricks workspace, instead of --lake.")
@click.option("--schema", metavar="NAME", help="Its schema.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file.  [default: ./fraudlake.toml, if there]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output and nothing else.")
@click.version_option(__version__, prog_name="fraudlake")
@click.pass_context
def cli(
    context: click.Context,
    lake: Path | None,
    catalog: str | None,
    schema: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Fraud detection on a lakehouse: Flink's transactions become alerts and scores.

    Every setting can also be given as FRAUDLAKE_<NAME> in the environment or as a line of fraudlake.toml.
    """
    context.obj = _App(lake, catalog, schema, config, as_json)


@cli.command()
@click.pass_obj
def setup(app: _App, /) -> None:
    """Fetch the jars and archive Java's classes, once: each later start of Spark then takes half the time."""
    from fraudlake.lake import spark_home

    is_new = spark_home.archive_classes()
    folder = str(spark_home.folder())
    app.say({"folder": folder, "is_new": is_new}, f"setup: {'made' if is_new else 'found'} in {folder}")


@cli.command()
@_options("landing")
@click.option("--rows", type=int, help="Stop after so many rows.  [default: no limit]")
@click.option("--seconds", type=float, help="Stop after so many seconds.  [default: no limit]")
@click.option("--rate", type=float, default=1000.0, show_default=True, help="Transactions a second of event time.")
@click.option("--real-time/--fast", default=None, help="Keep to the rate, or not.  [default: fast with --rows]")
@click.option("--start", default="2026-01-01", show_default=True, help="Event time of the first row (UTC), or 'now'.")
@click.option("--accounts", type=int, default=1000, show_default=True, help="Accounts that pay.")
@click.option("--fraud", type=float, default=0.005, show_default=True, help="Share of rows that are fraud.")
@click.option("--out-of-order", type=float, default=0.0, show_default=True, help="Share of rows that come late.")
@click.option("--disorder", type=float, default=5.0, show_default=True, help="By how many seconds at most.")
@click.option("--bad", type=float, default=0.0, show_default=True, help="Share of rows that break a rule of silver.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same rows.")
@click.option("--file-rows", type=int, default=100_000, show_default=True, help="Rows in a file.")
@click.option("--truth", type=click.Path(path_type=Path), help="Folder for the ground truth, row by row.")
@click.pass_obj
def simulate(app: _App, /, landing: str | None, real_time: bool | None, start: str, **options: Any) -> None:
    """Write card transactions as Flink would → the landing folder.

    Needs neither Flink nor Spark. Writes finished parquet files until --rows, --seconds or Ctrl-C.
    """
    from fraudlake import simulator

    wanted = app.settings(landing=landing)
    limits = {name: options.pop(name) for name in ("rows", "seconds", "file_rows", "truth")}
    written = 0

    def count(rows: int) -> None:
        nonlocal written
        written = rows
        spinner.update(f"simulate: {rows:,} rows")

    with _progress.status("simulate") as spinner:
        try:
            traffic = simulator.Traffic(start=_time(start), **options)
            paced = limits["rows"] is None if real_time is None else real_time
            simulator.simulate(Path(wanted.landing_path), traffic, real_time=paced, progress=count, **limits)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            pass  # the usual end of an endless source
    app.say({"landing": wanted.landing_path, "rows": written}, f"{written:,} rows landed in {wanted.landing_path}")


def _time(text: str) -> datetime:
    if text == "now":
        return datetime.now(UTC)
    given = datetime.fromisoformat(text)
    return given if given.tzinfo else given.replace(tzinfo=UTC)


@cli.command()
@_options("landing", "landing_timezone", "max_files_per_trigger", "max_bytes_per_trigger", *_KAFKA, *_STREAMING)
@click.option("--retry-rejected", is_flag=True, help="First read rejected files again that have been mended.")
@click.pass_obj
def ingest(app: _App, /, retry_rejected: bool, **flags: str | None) -> None:
    """Landed parquet files, or a Kafka topic → bronze_transactions.

    Reads the landing folder, each file once; writes bronze_transactions, bronze_files (what became of each file), and
    bronze_rejected_files for files that cannot be read. With --source kafka reads a topic instead. Needs: files that
    Flink has finished, or messages.
    """
    _run_step(app, "ingest", flags, retry_rejected=retry_rejected)


@cli.command()
@_options(*_QUALITY, *_STREAMING)
@click.pass_obj
def refine(app: _App, /, **flags: str | None) -> None:
    """bronze_transactions → silver_transactions, silver_quarantine.

    Reads new rows of bronze_transactions; writes those that keep every rule to silver_transactions and the others,
    with the reasons, to silver_quarantine. Needs: ingest.
    """
    _run_step(app, "refine", flags)


@cli.command()
@click.option("--rule", metavar="NAME", help="Only rows that broke this rule.")
@click.option("--limit", type=click.IntRange(min=0), default=3, show_default=True, help="Samples for each rule.")
@click.option("--replay", "is_replay", is_flag=True, help="Judge the rows again; those valid by now move to silver.")
@click.option("--set", "mended", metavar="COLUMN=SQL", multiple=True, help="With --replay: mend a value first.")
@_options(*_QUALITY)
@click.pass_obj
def quarantine(
    app: _App, /, rule: str | None, limit: int, is_replay: bool, mended: tuple[str, ...], **flags: str | None
) -> None:
    """Show what is kept out of silver, and why; or take it back in.

    Reads silver_quarantine: rows by rule, with samples. --replay judges the rows again, after a setting or a value was
    mended (--set "amount=abs(amount)"), and moves those that are valid to silver_transactions, exactly once; the steps
    behind then take them as new. Late rows are in silver already and stay. Needs: refine, which must not be running.
    """
    from fraudlake import summary
    from fraudlake.quarantine import replay, show

    wrong = next((one for one in mended if not one.partition("=")[2].strip()), None)
    if wrong is not None:
        raise UsageError(f"--set {wrong}: must be COLUMN=SQL, such as amount=abs(amount)")
    if mended and not is_replay:
        raise UsageError("--set mends what --replay takes back: give both")
    if is_replay:
        lake = app.open(**flags)
        done = replay.replay(lake, rule, {name.strip(): sql for name, _, sql in (one.partition("=") for one in mended)})
        app.say(asdict(done), summary.replayed(done))
        return
    found = show.quarantine(app.open_existing(**flags), rule, limit)
    if app.json:
        click.echo(json.dumps(asdict(found), default=str))
    else:
        summary.print_quarantine(Console(highlight=False), found)


@cli.command()
@_options("ordering", "max_out_of_orderness", *_RULES, *_STREAMING)
@click.pass_obj
def detect(app: _App, /, **flags: str | None) -> None:
    """silver_transactions → silver_alerts.

    Reads new rows of silver_transactions through the stateful detector; writes silver_alerts. Needs: refine.
    """
    _run_step(app, "detect", flags)


@cli.command()
@_options("max_out_of_orderness", *_RULES, *_STREAMING)
@click.pass_obj
def aggregate(app: _App, /, **flags: str | None) -> None:
    """silver_transactions, silver_alerts → gold_account_daily, gold_alert_windows, gold_detector_agreement.

    Reads new transactions and alerts; computes the days and windows that they touch anew, yesterday's too where they
    come late. Needs: refine, detect.
    """
    _run_step(app, "aggregate", flags)


@cli.command()
@_options(
    *_MODEL, "threshold", "holdout", "labels", "algorithm", "max_training_rows", "promotion_margin", "auto_promote"
)
@click.pass_obj
def train(app: _App, /, **flags: str | None) -> None:
    """silver_transactions, silver_verdicts → a registered model.

    Reads silver_transactions with Flink's label or analysts' verdicts; writes boosted trees to MLflow, tested on the
    latest part of the history. The first one scores from then on, another one where it beats the one that does.
    Does nothing where the latest saw the same rows in the same way. Needs: refine.
    """
    lake = app.open(**flags)
    result = _train(lake)
    app.say(result, _trained(result))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def verdicts(app: _App, /, file: Path) -> None:
    """Analysts' verdicts in FILE → silver_verdicts.

    Reads a CSV (with a header) or parquet file with transaction_id and verdict (true: fraud), and where there are any
    analyst, reason and decided_at; the same file again adds nothing. Needs: refine.
    """
    from fraudlake.model import verdicts as decided

    done = decided.load(app.open(), file)
    app.say(
        asdict(done),
        f"{done.taken:,} verdicts taken, {done.known:,} were there already, "
        f"{done.strange:,} are about transactions that silver does not hold",
    )


@cli.command()
@click.option("--from", "first", type=click.DateTime(["%Y-%m-%d"]), help="Score a range of dates anew: its first day.")
@click.option("--to", "last", type=click.DateTime(["%Y-%m-%d"]), help="Its last day.  [default: the first]")
@click.option("--model-version", metavar="N", help="With --from: the version to score with.  [default: the champion]")
@_options(*_MODEL, "threshold", *_KAFKA, *_STREAMING)
@click.pass_obj
def score(
    app: _App, /, first: datetime | None, last: datetime | None, model_version: str | None, **flags: str | None
) -> None:
    """silver_transactions → gold_fraud_predictions, gold_prediction_quality, gold_feature_drift.

    Reads new rows of silver_transactions, or with --source kafka a topic; writes a prediction for each under the
    champion, and the figures of the days that changed. With --from scores a range of dates anew instead, under one
    version; the same again changes nothing. Needs: train.
    """
    if first is None:
        if last is not None or model_version is not None:
            raise UsageError("--to and --model-version go with --from")
        # Only where it is asked for here: in a settings file the source is that of 'ingest'.
        _run_step(app, "score", flags, from_topic=flags["source"] == "kafka")
        return
    from fraudlake.model import scoring

    lake = app.open(**flags)
    with _timed("backfill") as told:
        version, rows = scoring.backfill(lake, first.date(), (last or first).date(), model_version)
        told.append(f"{rows:,} rows under version {version}")
    app.say({"model_version": version, "rows": rows}, f"{rows:,} transactions scored under version {version}")


@cli.group()
def model() -> None:
    """Show the model's versions; compare, promote, roll back."""


@model.command("list")
@_options(*_MODEL)
@click.pass_obj
def list_models(app: _App, /, **flags: str | None) -> None:
    """Show all versions with their aliases and figures. Needs: train."""
    from fraudlake import summary
    from fraudlake.model import training

    versions = training.versions(app.open_existing(**flags))
    if app.json:
        click.echo(json.dumps({"versions": [asdict(one) for one in versions]}, default=str))
    else:
        summary.print_versions(Console(highlight=False), versions)


@model.command()
@click.argument("version", required=False)
@_options(*_MODEL, "threshold", "labels", "holdout", "promotion_margin")
@click.pass_obj
def compare(app: _App, /, version: str | None, **flags: str | None) -> None:
    """Judge VERSION (default: the challenger) against the champion on rows that neither learned from. Needs: train."""
    from fraudlake import summary
    from fraudlake.model import training

    lake = app.open_existing(**flags)
    with _timed("compare"):
        found = training.compare(lake, version)
    if app.json:
        click.echo(json.dumps(asdict(found)))
    else:
        summary.print_comparison(Console(highlight=False), found)


@model.command()
@click.argument("version", required=False)
@click.option("--force", is_flag=True, help="Promote without a comparison.")
@_options(*_MODEL, "threshold", "labels", "holdout", "promotion_margin")
@click.pass_obj
def promote(app: _App, /, version: str | None, force: bool, **flags: str | None) -> None:
    """Let VERSION, by default the challenger, score from now on, where it beats the champion. Needs: train."""
    from fraudlake.model import training

    lake = app.open(**flags)
    with _timed("promote"):
        promoted, reason = training.promote(lake, version, force)
    app.say({"champion": promoted.number, "reason": reason}, f"version {promoted.number} is the champion: {reason}")


@model.command()
@_options(*_MODEL)
@click.pass_obj
def rollback(app: _App, /, **flags: str | None) -> None:
    """Let the version score again that the champion took over from. Needs: a promotion."""
    from fraudlake.model import training

    back = training.rollback(app.open(**flags))
    app.say({"champion": back.number}, f"version {back.number} is the champion again")


@cli.command()
@click.option("--allow-short-retention", is_flag=True, help="Accept a retention of less than 7 days.")
@_options("target_file_size", "retention")
@click.pass_obj
def optimize(app: _App, /, allow_short_retention: bool, **flags: str | None) -> None:
    """Compact the tables, cluster them by account, and remove files that they no longer hold.

    Reads and rewrites the tables that changed since they were last optimized; no row changes, and the streams may go
    on. Files that left a table longer ago than --retention are removed (VACUUM), unless a step that reads the table is
    further behind than that. Needs: nothing.
    """
    from fraudlake.operations import maintenance

    maintenance.require_safe(app.settings(**flags).retention, allow_short_retention)
    lake = app.open(**flags)
    with _timed("optimize") as told:
        names = maintenance.optimize(lake)
        told.append(f"{len(names)} tables rewritten")
    with _timed("vacuum") as told:
        cleaned = maintenance.vacuum(lake)
        told.append(f"{len(cleaned.tables)} tables cleaned")
    for name, behind in cleaned.skipped.items():
        _progress.print(f"[yellow]![/] {name} was not cleaned: {', '.join(behind)} must read it first", soft_wrap=True)
    result = {"optimized": names, "vacuumed": cleaned.tables, "skipped": cleaned.skipped}
    app.say(result, f"optimized: {', '.join(names) or 'nothing had changed'}")


@cli.command()
@_options(
    "landing",
    "source",
    "bootstrap_servers",
    "topic",
    "starting_offsets",
    "kafka_secret",
    "max_drift",
    "min_true_prediction_rate",
)
@click.pass_obj
def status(app: _App, /, **flags: str | None) -> None:
    """Show how many rows each layer holds, and whether they add up.

    Reads the landing folder, the tables and the checkpoints; writes nothing. Exit code 1 where the counts do not add
    up, or where the model's latest day has drifted or its predictions are too often wrong.
    """
    from fraudlake import summary
    from fraudlake.operations.status import status as status_of

    found = status_of(app.open_existing(**flags))
    if app.json:
        click.echo(json.dumps(found.as_dict(), default=str))
    else:
        summary.print_counts(Console(highlight=False), found)
    if found.gaps or found.breaches:
        sys.exit(1)


@cli.command()
@click.pass_obj
def state(app: _App, /) -> None:
    """Show what the detector's stream holds now: open flags by age, waiting rows, watermark, size.

    Reads the checkpoint of the detect step, whether the stream runs or not; writes nothing. Needs: detect.
    """
    from fraudlake import summary
    from fraudlake.detection.state import state as state_of

    lake = app.open_existing()
    with _progress.status("reading the checkpoint"):
        found = state_of(lake)
    if app.json:
        click.echo(json.dumps(found.as_dict(), default=str))
    else:
        summary.print_state(Console(highlight=False), found)


@cli.command()
@_options("landing", "ordering", "max_out_of_orderness", *_RULES, "max_files_per_trigger", *_KAFKA, *_STREAMING)
@click.pass_obj
def run(app: _App, /, **flags: str | None) -> None:
    """Run all steps in order: ingest, refine, detect, aggregate, train, score, optimize.

    With --trigger continuous all streams then go on together until stopped. Needs: files that Flink has finished, or
    a Kafka topic (--source kafka).
    """
    from fraudlake import steps, summary
    from fraudlake.model import training
    from fraudlake.operations import maintenance
    from fraudlake.operations.status import status as status_of

    begun = time.monotonic()
    lake = app.open(**flags)
    for step in (steps.ingest, steps.refine, steps.detect, steps.aggregate):
        _run_streams(lake, step(lake), "available-now")
    trained = _train_or_tell(lake)
    scoring = [steps.score] if training.registry_of(lake).champion() else []
    for step in scoring:
        _run_streams(lake, step(lake), "available-now")
    with _timed("optimize") as told:
        told.append(f"{len(maintenance.optimize(lake))} tables rewritten")
    if lake.settings.trigger == "continuous":
        streaming = (steps.ingest, steps.refine, steps.detect, steps.aggregate, *scoring)
        _run_streams(lake, [one for step in streaming for one in step(lake)], "continuous")
    found = status_of(lake)
    if app.json:
        click.echo(json.dumps({**found.as_dict(), "model": trained}, default=str))
    else:
        summary.print_run(Console(highlight=False), lake, found, trained, time.monotonic() - begun)


@cli.group()
@click.option("--profile", metavar="NAME", help="Profile of ~/.databrickscfg.  [default: DATABRICKS_* or DEFAULT]")
@click.option("--warehouse", metavar="NAME", help="Name or id of the SQL warehouse.  [default: one that runs, or any]")
@click.pass_context
def workspace(context: click.Context, profile: str | None, warehouse: str | None) -> None:
    """Ask a Databricks workspace, or try what is deployed there: rights, jobs, a run, a probe, a smoke test.

    Works from a laptop or from CI, through the workspace's API; needs no Spark. Needs: what 'databricks auth login' or
    DATABRICKS_HOST and DATABRICKS_TOKEN give.
    """
    context.obj = _Workspace(context.obj, profile, warehouse)


@dataclass(frozen=True)
class _Workspace:
    """The options that stand before a command of ``workspace``."""

    app: _App
    profile: str | None
    warehouse: str | None

    def connect(self) -> WorkspaceClient:
        from fraudlake.workspace import client

        return client.connect(self.profile)

    def settings(self, **flags: object) -> Settings:
        made = self.app.settings(**flags)
        if made.catalog is None:
            raise UsageError("which lake? give --catalog and --schema before 'workspace'")
        return made


@workspace.command()
@click.option("--service-principal", metavar="ID", help="Also whether staging and prod can run as this application id.")
@click.option("--group", "groups", metavar="NAME", multiple=True, help="Also whether this group can be granted rights.")
@_options("landing", "checkpoints", "kafka_secret")
@click.pass_obj
def check(given: _Workspace, /, service_principal: str | None, groups: tuple[str, ...], **flags: str | None) -> None:
    """Tell whether you may use catalog, schema, volumes, warehouse and secret, and what to grant where not.

    Reads the workspace; writes one small file into the volume of the checkpoints and removes it. Exit code 1 where
    something is missing.
    """
    from fraudlake.workspace.check import check as checks_of

    wanted = given.settings(**flags)
    found = []
    for one in checks_of(given.connect(), wanted, given.warehouse, service_principal, groups):
        found.append(one)
        if not given.app.json:
            mark, remedy = ("[green]✓[/]", "") if one.ok else ("[red]✗[/]", f"\n  {escape(one.remedy or '')}")
            _output.print(f"{mark} {escape(one.what)}: {escape(one.seen)}{remedy}", soft_wrap=True)
    ok = all(one.ok for one in found)
    if given.app.json:
        click.echo(json.dumps({"ok": ok, "checks": [asdict(one) for one in found]}))
    if not ok:
        sys.exit(1)


@workspace.command("jobs")
@click.option("--runs", type=click.IntRange(min=0, max=20), default=3, show_default=True, help="Runs for each job.")
@click.pass_obj
def jobs_(given: _Workspace, /, runs: int) -> None:
    """List the deployed jobs with their last runs: state, duration, and why one failed."""
    from fraudlake.workspace import jobs

    found = jobs.jobs(given.connect(), given.app.settings(), runs)
    if given.app.json:
        click.echo(json.dumps({"jobs": [asdict(one) for one in found]}, default=str))
        return
    for job in found:
        _output.print(f"[bold]{escape(job.name)}[/] {job.id} {escape(job.title)}", soft_wrap=True)
        for run in job.runs:
            colour = _CLEARLY.get(run.state, "default")
            when = f"{run.started:%Y-%m-%d %H:%M}" if run.started else "not started"
            error = f"  {escape(run.error)}" if run.error else ""
            _output.print(f"  [{colour}]{run.state:<10}[/] {when} {run.seconds:8.0f} s{error}", soft_wrap=True)


@workspace.command("run")
@click.argument("job")
@click.option("--wait", "is_waiting", is_flag=True, help="Watch the run to its end; exit code 1 where it fails.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait at most.")
@click.pass_obj
def run_(given: _Workspace, /, job: str, is_waiting: bool, timeout: float) -> None:
    """Start a deployed JOB: its name (such as ingest_and_detect) or its id."""
    from fraudlake.workspace import jobs

    client = given.connect()
    started = jobs.start(client, jobs.find(client, given.app.settings(), job))
    if not is_waiting:
        given.app.say({"run": started}, f"run {started} has started")
        return
    ended = _watched(client, started, timeout)
    given.app.say({"run": started, **asdict(ended)}, f"run {started} succeeded in {ended.seconds:.0f} s: {ended.url}")


@workspace.command("smoke")
@click.option("--job", default="ingest_and_detect", show_default=True, help="The job to run.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds to wait for it at most.")
@_options("landing")
@click.pass_obj
def smoke_(given: _Workspace, /, job: str, timeout: float, **flags: str | None) -> None:
    """Land the ten transactions of Flink's tutorial, run the job, and expect alerts for accounts 2, 4 and 3.

    Writes one file into the landing folder, under accounts of its own, and takes it and its rows away again.
    """
    from fraudlake.workspace import jobs
    from fraudlake.workspace import smoke as smoking
    from fraudlake.workspace.sql import Sql, warehouse

    wanted = given.settings(**flags)
    client = given.connect()
    found = jobs.find(client, wanted, job)
    sql = Sql(client, str(warehouse(client, given.warehouse).id), str(wanted.catalog), str(wanted.schema_name))
    one = smoking.Smoke.new()
    ended = smoking.smoke(client, wanted, sql, lambda: _watched(client, jobs.start(client, found), timeout), one)
    text = f"alerts for accounts {', '.join(smoking.EXPECTED)}, as in Flink's tutorial; cleaned up. {ended.url}"
    given.app.say({"alerts": smoking.EXPECTED, "run": ended.id}, text)


@workspace.command("probe")
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds to wait for the job at most.")
@_options("checkpoints", "model_name")
@click.pass_obj
def probe_(given: _Workspace, /, timeout: float, **flags: str | None) -> None:
    """Ask the workspace each thing that the jobs rely on, one line each, with what to do where it is otherwise.

    Inside the workspace asks the compute it runs on; outside it runs the deployed job 'probe', which takes about two
    minutes. Makes tables and a folder of its own, and removes them. Exit code 1 where something will not work.
    """
    from fraudlake.workspace import jobs, probe

    wanted = given.settings(**flags)
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        from fraudlake.lake.workspace import compute_session

        answers = []
        for answer in probe.ask(compute_session(), wanted):
            answers.append(answer)
            # With --json the lines are the progress that the page of the job's run shows.
            _show(_progress if given.app.json else _output, answer)
    else:
        client = given.connect()
        started = jobs.start(client, jobs.find(client, wanted, probe.JOB))
        answers = _answers_of(client, started, timeout)
        for answer in [] if given.app.json else answers:
            _show(_output, answer)
    if given.app.json:
        click.echo(json.dumps(probe.as_dict(answers)))
    probe.require(answers)


def _answers_of(client: WorkspaceClient, run: int, timeout: float) -> list[Answer]:
    """Wait for a run of the probe's job; one that fails has most often printed its answers, which say why."""
    from fraudlake.workspace import probe

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
    from fraudlake.workspace import jobs

    with _progress.status(f"run {run}"):
        return jobs.wait(client, run, timeout, lambda task, state: _progress.print(f"  {task:<20} {state}"))


def _run_step(app: _App, step: str, flags: dict[str, str | None], **arguments: Any) -> None:
    from fraudlake import steps

    lake = app.open(**flags)
    done = _run_streams(lake, getattr(steps, step)(lake, **arguments), lake.settings.trigger)
    text = "\n".join(f"{one.step}: {one.rows:,} {_unit(one.step)} in {one.batches} micro-batches" for one in done)
    app.say({"streams": [asdict(one) for one in done]}, text)


def _run_streams(lake: Lake, streams: list[Stream], trigger: str) -> list[Done]:
    from fraudlake.streaming import stream

    done = []
    # Over what is there, a stream starts when the one that feeds it is done; continuous streams go on together.
    groups = [streams] if trigger == "continuous" else [[one] for one in streams]
    for group in groups:
        with _timed(group[0].step if len(group) == 1 else "all streams (stop with Ctrl-C)") as told:
            finished = stream.run(lake, group, trigger, told.append_progress)
            told.append(", ".join(f"{one.rows:,} {_unit(one.step)}" for one in finished))
        done += finished
    return done


def _train(lake: Lake) -> dict[str, Any]:
    from rich.progress import BarColumn, Progress, TextColumn

    from fraudlake import steps

    columns = TextColumn("train: {task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total}")
    begun = time.monotonic()
    with Progress(*columns, console=_progress, transient=True, disable=not _progress.is_terminal) as bar:
        task = bar.add_task("features", total=None)
        outcome = steps.train(
            lake, lambda done, all_, text: bar.update(task, completed=done, total=all_, description=text)
        )
    version = outcome.version
    _done("train", f"model version {version.number}{'' if outcome.is_new else ', up to date'}", begun)
    return {
        "version": version.number,
        "new": outcome.is_new,
        "champion": outcome.is_champion,
        "reason": outcome.reason,
        "metrics": version.metrics,
    }


def _train_or_tell(lake: Lake) -> dict[str, Any] | None:
    """Train; a lake that holds too little to learn from is told so and goes on."""
    from fraudlake.model.search import TooLittleError

    try:
        return _train(lake)
    except TooLittleError as error:
        _progress.print(f"[yellow]![/] {error}", soft_wrap=True)
        return None


def _trained(result: dict[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in sorted(result["metrics"].items()))
    reason = f"\n{result['reason']}" if result["reason"] else ""
    return f"model version {result['version']}{'' if result['new'] else ' is up to date'}: {figures}{reason}"


def _unit(step: str) -> str:
    return "files" if step == "ingest" else "rows"


class _Told(list[str]):
    """What a finished step reports; progress on the way updates the line that turns."""

    def __init__(self, step: str, status: Any) -> None:
        self._step, self._status = step, status

    def append_progress(self, step: str, rows: int, batches: int) -> None:
        self._status.update(f"{self._step}: {step} {rows:,} {_unit(step)}, {batches} micro-batches")


@contextmanager
def _timed(step: str) -> Iterator[_Told]:
    """Show a step while it works and, when it is done, what it did and how long it took."""
    begun = time.monotonic()
    with _progress.status(step) as status:
        told = _Told(step, status)
        yield told
    _done(step, ", ".join(told), begun)


def _done(step: str, told: str, begun: float) -> None:
    _progress.print(f"[green]✓[/] {step:<20} {told:<40} {time.monotonic() - begun:5.1f} s")


def main() -> None:
    """Run the command line; a mistake ends with one line on standard error and exit code 1 or 2."""
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("fraudlake").setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j logs a lost connection to the root logger, too.
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: "py4j" not in record.pathname)
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except FraudlakeError as error:
        _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("stopped", 130)
    except Exception as error:
        if _spark_is_gone(error):
            _fail("the Spark process ended, killed or out of memory: run again, it goes on after the last commit", 1)
        if _ends_with_its_machine():
            traceback.print_exception(error)
            _fail(_first_line(error), 1)
        _fail(f"{_first_line(error)} (the details are in {_keep(error)})", 1)
    # A Databricks job takes any SystemExit for a failure, even that of exit code 0.
    if code:
        sys.exit(code)


def _fail(message: str, code: int) -> None:
    _progress.print(f"fraudlake: {message}", markup=False, soft_wrap=True)
    # A Databricks job shows the text of the exception that ended it, not what stood on standard error.
    end = SystemExit(f"fraudlake: {message}")
    end.code = code
    raise end


def _spark_is_gone(error: Exception) -> bool:
    """Tell whether the JVM could not be reached; what it raises itself arrives as other types than these."""
    return isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JError", "Py4JNetworkError")


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _ends_with_its_machine() -> bool:
    """Tell whether a file that is written here may be gone before anybody reads it: in a job of a workspace."""
    is_named = "FRAUDLAKE_CATALOG" in os.environ or any(one.partition("=")[0] == "--catalog" for one in sys.argv)
    return is_named or "DATABRICKS_RUNTIME_VERSION" in os.environ


def _keep(error: Exception) -> Path:
    """Write an unforeseen error's stack trace where it can be sent from."""
    file = Path.home() / ".cache" / "fraudlake" / "error.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(traceback.format_exception(error)))
    return file
