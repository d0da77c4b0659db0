"""Operator commands: setup, optimize, status, state, explain, forget."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.output import summary
from fraudlake_cli.output.lake_figures import LakeFigures
from fraudlake_cli.output.progress import console, output, planned, timed

if TYPE_CHECKING:
    from fraudlake.lake.commit import Commit


@cli.command(example="fraudlake setup")
@click.pass_obj
def setup(app: App, /) -> None:
    """Fetch the jars that Spark needs, once; otherwise the first command that starts Spark does it."""
    from fraudlake.lake import jars, spark_home

    with timed("jars"):
        jars.folder()
    with timed("Spark's home"):
        folder = str(spark_home.folder())
    app.say({"folder": folder}, f"setup: {folder}")


@cli.command(example='fraudlake optimize --row-retention \'{"silver_transactions": "400d"}\'')
@click.option("--allow-short-retention", is_flag=True, help="Accept a retention of less than 7 days.")
@options("target_file_size", "cluster_growth", "retention", "row_retention", "max_idle")
@click.pass_obj
def optimize(app: App, /, allow_short_retention: bool, **flags: str | None) -> None:
    """Compact the tables, cluster them by account, and remove old rows and unused files.

    Removes rows older than --row-retention; without it no row is removed or changed. Compacts small files, and clusters
    days that are complete or have grown by --cluster-growth; streams may run meanwhile. Removes files that left a table
    longer ago than --retention (VACUUM), unless a step has yet to read older commits of the table. Removes nothing if
    the newest transaction or commit is older than --max-idle: the clock may be ahead. Needs: nothing.
    """
    from fraudlake.operations import maintenance, retention

    settings = app.settings(**flags)
    maintenance.require_safe(settings.retention, allow_short_retention)
    retention.require_known(settings)
    with planned("row retention", "optimize", "vacuum") as is_done:
        lake = app.open(**flags)
        histories: dict[str, list[Commit]] = {}
        with timed("row retention") as report:
            removed = retention.remove_old_rows(lake, histories)
            report.append(f"{counted(sum(removed.values()), 'row')} removed")
        is_done()
        with timed("optimize") as report:
            names = maintenance.optimize(lake, report.parts("table"), histories)
            report.append(f"{counted(len(names), 'table')} rewritten")
        is_done()
        with timed("vacuum") as report:
            cleaned = maintenance.vacuum(lake)
            report.append(f"{counted(len(cleaned.tables), 'table')} cleaned")
    for name, steps in cleaned.skipped.items():
        console.print(f"[yellow]![/] {name} was not cleaned: {', '.join(steps)} must read it first", soft_wrap=True)
    if cleaned.in_doubt:
        doubt = "silver_transactions had no commit for longer than max_idle, or the clock is ahead"
        console.print(f"[yellow]![/] no file was removed of {', '.join(cleaned.in_doubt)}: {doubt}", soft_wrap=True)
    result = {"removed": removed, "optimized": names, "vacuumed": cleaned.tables, "skipped": cleaned.skipped}
    result["in_doubt"] = cleaned.in_doubt
    app.say(result, f"optimized: {', '.join(names) or 'nothing had changed'}")


@cli.command(example="fraudlake status --json")
@options(
    "landing",
    "source",
    "bootstrap_servers",
    "topic",
    "starting_offsets",
    "fast_alerts_topic",
    "kafka_secret",
    "max_drift",
    "min_true_prediction_rate",
)
@click.pass_obj
def status(app: App, /, **flags: str | None) -> None:
    """Show how many rows each layer holds, and whether they add up.

    Reads the landing folder, the tables and the checkpoints; writes nothing. Exit code 1 if the counts do not add up,
    if the model's latest day has drifted, if its predictions are too often wrong, or if an item of the review has been
    open for longer than review_limit.
    """
    figures = LakeFigures.of(app.open_existing(**flags))
    app.show(figures.as_dict(), lambda: summary.print_counts(output, figures))
    if figures.status.gaps or figures.status.model.breaches:
        sys.exit(1)


@cli.command(example="fraudlake state")
@click.pass_obj
def state(app: App, /) -> None:
    """Show the state of the detector's stream: open flags by age, waiting rows, watermark, size.

    Shows the tiles of declared features by entity, too, and the entities that most rows have no key of. Reads the
    checkpoints of detect and score, whether the streams run or not; writes nothing. Needs: detect.
    """
    from fraudlake.detection.state import state as state_of
    from fraudlake.features import feature_state

    lake = app.open_existing()
    with console.status("reading the checkpoints"):
        stream_state = state_of(lake)
        tiles = feature_state.by_entity(lake)
    for sentence in stream_state.mostly_without_key:
        console.print(f"[yellow]![/] {sentence}", soft_wrap=True)
    app.show(
        {**stream_state.as_dict(), "features_by_entity": tiles},
        lambda: summary.print_state(output, stream_state, tiles),
    )


@cli.command(example="fraudlake explain 8972fc095d8a6183194bc81c05f027de")
@click.argument("alert")
@click.pass_obj
def explain(app: App, /, alert: str) -> None:
    """Trace an alert back to its rule, both transactions, and the file and row, or topic and offset, of each.

    Reads ALERT, an alert_id of silver_alerts, and its sources, with the table versions that first held each row. Starts
    no Java on a laptop, and writes nothing. Needs: detect.
    """
    from fraudlake.operations import lineage

    with console.status("explain"):
        explained = lineage.explain(app.open_existing(), alert)
    app.say(explained.as_dict(), summary.explained(explained))


@cli.command(example="fraudlake forget 1042 1043 --yes")
@click.argument("accounts", nargs=-1, required=True, metavar="ACCOUNT...")
@click.option(
    "--yes", is_flag=True, help="Remove the accounts. Without this flag, only show the rows that would be removed."
)
@click.option("--reason", help="Why, for the second person, if the lake needs two.")
@options("landing", "source", "delivery_folder", "model_name", "experiment", "ordering")
@click.pass_obj
def forget(app: App, /, accounts: tuple[str, ...], yes: bool, reason: str | None, **flags: str | None) -> None:
    """Remove accounts from the lake, and prove it.

    Without --yes, shows how many rows would be removed. With --yes, removes the accounts from every table, from landed
    files that 'simulate' wrote, from delivered files, from the state of streams and from Delta's log. Then it scans
    every file of the lake, and names what it cannot remove. gold_forgotten records when this was done. No other command
    may run; repeat a call that was killed. Exit code 1 if a trace is left. Needs: steps that have read all their input.
    """
    from fraudlake.forget import removal
    from fraudlake.forget.plan import plan

    wanted = tuple(dict.fromkeys(accounts))
    if not yes:
        lake = app.open_existing(**flags)
        with console.status("forget"):
            planned = plan(lake, wanted)
        app.say(
            {"removed": False, **asdict(planned)}, summary.forgotten(planned, "would be removed (--yes removes it)")
        )
        return
    lake = app.open(**flags)
    with timed("forget") as report:
        result = removal.forget(lake, wanted, reason)
        report.append(f"{counted(result.scanned_files, 'file')} scanned")
    text = summary.forgotten(result, "removed")
    app.say(
        {"removed": not result.traces, **asdict(result)},
        "\n".join([text, *(f"a trace is left in {trace}" for trace in result.traces)]),
    )
    if result.traces:
        sys.exit(1)
