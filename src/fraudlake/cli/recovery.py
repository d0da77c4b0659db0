"""Commands that put tables back or rebuild them: restore."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import click

from fraudlake.cli.app import App, cli
from fraudlake.cli.progress import console
from fraudlake.errors import UsageError


@cli.command()
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

    if (version is None) == (timestamp is None):
        raise UsageError("give either --version N or --timestamp TIME")
    time = None if timestamp is None else _time(timestamp)
    # Nothing is made: a restored table must be there.
    lake = app.open_existing()
    with console.status("restore"):
        done = restoring.restore(lake, table, version, time, allow_streams)
    app.say(
        asdict(done),
        f"{done.table} has the {done.rows_after:,} rows of version {done.version} again, as version "
        f"{done.version_after}; before, at version {done.version_before}, it had {done.rows_before:,}",
    )


def _time(text: str) -> datetime:
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--timestamp {text}: must be a time such as 2026-03-07 or 2026-03-07T12:30") from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)
