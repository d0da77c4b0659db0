"""Commands that put tables back or rebuild them: restore, replay."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from fraudlake.cli import summary
from fraudlake.cli.app import QUALITY, RULES, App, cli, options
from fraudlake.cli.command import Day, time_of
from fraudlake.cli.progress import console
from fraudlake.errors import UsageError

_DAY = Day()


@cli.command(example="fraudlake restore silver_alerts --timestamp 2026-03-07T12:30")
@click.argument("table")
@click.option("--version", type=click.IntRange(min=0), help="The version whose rows the table gets back.")
@click.option("--timestamp", metavar="TIME", help="A time (UTC) such as 2026-03-07 or 2026-03-07T12:30, instead.")
@click.option("--allow-streams", is_flag=True, help="Restore a table although a stream reads it.")
@click.pass_obj
def restore(app: App, /, table: str, version: int | None, timestamp: str | None, allow_streams: bool) -> None:
    """Put TABLE back to an earlier version, in one commit; the present version stays readable by time travel.

    Streams go on behind that commit: they neither read rows that come back nor take back what they made of rows that
    leave. Needs: no step running, and the files of that version, which VACUUM removes after the setting retention.
    """
    from fraudlake.operations import restore as restoring

    restoring.require_table(table)
    if (version is None) == (timestamp is None):
        raise UsageError(f"restore {table} to which version? give either --version N or --timestamp TIME")
    time = None if timestamp is None else time_of("--timestamp", timestamp)
    # Nothing is made: a restored table must be there.
    lake = app.open_existing()
    with console.status("restore"):
        done = restoring.restore(lake, table, version, time, allow_streams)
    app.say(
        asdict(done),
        f"{done.table} has the {done.rows_after:,} rows of version {done.version} again, as version "
        f"{done.version_after}; before, at version {done.version_before}, it had {done.rows_before:,}",
    )


@cli.command(example="fraudlake replay --from 2026-03-01 --to 2026-03-07")
@click.option("--from", "first", type=_DAY, required=True, help="First day (UTC).")
@click.option("--to", "last", type=_DAY, required=True, help="Last day (UTC), included.")
@click.option("--apply", "is_applied", is_flag=True, help="Put the days in place, in one commit a table.")
@options(*QUALITY, "ordering", *RULES)
@click.pass_obj
def replay(app: App, /, first: datetime, last: datetime, is_applied: bool, **flags: str | None) -> None:
    """Compute days of silver, quarantine, alerts and aggregates again from bronze; show or put in place what changes.

    Reads bronze_transactions of the days, and transactions shortly before them, under the present settings, in
    event-time order. Without --apply nothing changes. With it each table that differs gets a commit that streams pass
    over; the versions before stay readable, and a replay that was cut is finished by the next one. Needs: refine and
    detect, which have read everything; with --apply no step running.
    """
    from fraudlake.operations import rebuild

    lake = app.open(**flags) if is_applied else app.open_existing(**flags)
    with console.status("replay"):
        done = rebuild.rebuild(lake, first.date(), last.date(), is_applied)
    app.say(done.as_dict(), summary.rebuilt(done))
