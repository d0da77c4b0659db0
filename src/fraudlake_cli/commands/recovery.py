"""Commands that restore or rebuild tables: restore, replay."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from fraudlake.errors import UsageError
from fraudlake_cli.app import QUALITY, App, cli, options
from fraudlake_cli.command import Day, time_of
from fraudlake_cli.commands.rule_changes import note_other_rules
from fraudlake_cli.output import summary
from fraudlake_cli.output.progress import console

_DAY = Day()


@cli.command(example="fraudlake restore silver_alerts --timestamp 2026-03-07T12:30")
@click.argument("table")
@click.option("--version", type=click.IntRange(min=0), help="Version of the table to restore.")
@click.option(
    "--timestamp", metavar="TIME", help="Time (UTC) to restore, such as 2026-03-07T12:30, instead of a version."
)
@click.option("--allow-streams", is_flag=True, help="Restore the table even if a stream reads it.")
@click.option("--reason", help="Why, for the second person, if the lake needs two.")
@click.pass_obj
def restore(
    app: App, /, table: str, version: int | None, timestamp: str | None, allow_streams: bool, reason: str | None
) -> None:
    """Restore TABLE to an earlier version in one commit; the current version stays readable by time travel.

    Streams skip that commit: they do not read rows that come back, and keep the results of rows that are removed.
    Needs: no step running, and the files of that version, which VACUUM removes after the setting retention.
    """
    from fraudlake.operations import restore as restoring

    restoring.require_table(table)
    if (version is None) == (timestamp is None):
        raise UsageError(f"no version of {table} is named: give either --version N or --timestamp TIME")
    time = None if timestamp is None else time_of("--timestamp", timestamp)
    # Nothing is created: a restored table must exist.
    lake = app.open_existing()
    with console.status("restore"):
        done = restoring.restore(lake, table, version, time, allow_streams, reason)
    app.say(
        asdict(done),
        f"{done.table} has the {done.rows_after:,} rows of version {done.version} again, as version "
        f"{done.version_after}; before, at version {done.version_before}, it had {done.rows_before:,}",
    )


@cli.command(example="fraudlake replay --from 2026-03-01 --to 2026-03-07")
@click.option("--from", "first", type=_DAY, required=True, help="First day (UTC).")
@click.option("--to", "last", type=_DAY, required=True, help="Last day (UTC), included.")
@click.option("--apply", "is_applied", is_flag=True, help="Write the days, in one commit per table.")
@options(*QUALITY, "ordering")
@click.pass_obj
def replay(app: App, /, first: datetime, last: datetime, is_applied: bool, **flags: str | None) -> None:
    """Recompute days of silver, quarantine, alerts and aggregates from bronze, and show or write the changes.

    Reads bronze_transactions of the days, and transactions shortly before them, under the current settings, in
    event-time order. Without --apply nothing changes. With it, each table that differs gets a commit that streams skip.
    The versions before stay readable. The next replay finishes one that was killed. Needs: refine and detect, which
    have read everything; with --apply no step running.
    """
    from fraudlake.operations import rebuild

    lake = app.open(**flags) if is_applied else app.open_existing(**flags)
    with console.status("replay"):
        done = rebuild.rebuild(lake, first.date(), last.date(), is_applied)
    note_other_rules(lake)
    app.say(done.as_dict(), summary.rebuilt(done))
