"""The command watch: shows rate, lag and latest alerts of a lake's streams in a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fraudlake.process import stop
from fraudlake.text.counts import age, counted
from fraudlake_cli.app import App, cli
from fraudlake_cli.output.progress import output

if TYPE_CHECKING:
    from fraudlake.operations.activity import Activity, StreamActivity

NOTHING = "no stream has begun: run 'fraudlake run'"


@cli.command(example="fraudlake --lake my-lake watch")
@click.option("--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two looks.")
@click.option("--alerts", type=click.IntRange(0, 100), default=8, show_default=True, help="Latest alerts to show.")
@click.option("--once", is_flag=True, help="Look once and end, as --json does.")
@click.pass_obj
def watch(app: App, /, every: float, alerts: int, once: bool) -> None:
    """Show what the streams of a lake do: rate, lag, time of micro-batches, and the latest alerts.

    Reads checkpoints, Delta's log and silver_alerts, whichever process runs the streams; starts no Java on a laptop,
    and writes nothing. In a terminal the view stays in place until Ctrl-C; otherwise each change is a line. Needs: a
    lake.
    """
    from fraudlake.operations.activity import Watcher

    lake = app.open_existing()
    watcher = Watcher(lake, alerts)
    if app.json:
        app.show(asdict(watcher.look(datetime.now(UTC))))
    elif once:
        output.print(view(lake.name, watcher.look(datetime.now(UTC))))
    else:
        try:
            _follow(lake.name, (watcher.look(datetime.now(UTC)) for _ in _ticks(every)))
        except stop.StoppedError as stopped:
            stopped.then = "the streams go on"
            raise


def _ticks(seconds: float) -> Iterator[None]:
    while True:
        yield
        time.sleep(seconds)


def _follow(lake: str, looks: Iterator[Activity]) -> None:
    """Show successive states, in place in a terminal and otherwise as lines."""
    if not output.is_terminal:
        before: dict[str, str] = {}
        for look in looks:
            now = lines(look)
            for key in (key for key in now if key not in before):
                output.print(now[key], markup=False, soft_wrap=True)
            before = now
        return
    with Live(console=output, auto_refresh=False) as live:
        for look in looks:
            live.update(view(lake, look), refresh=True)


def view(lake: str, activity: Activity) -> Group:
    """Return the view of a lake: a row for each stream, and the latest alerts."""
    title = Text.assemble((lake, "bold"), f"  {activity.at:%Y-%m-%d %H:%M:%S} UTC", style="dim")
    if not activity.streams:
        return Group(title, Text(NOTHING))
    streams = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    streams.add_column("stream")
    streams.add_column("micro-batch", justify="right")
    streams.add_column("took", justify="right")
    streams.add_column("rows/s", justify="right")
    streams.add_column("to read", justify="right")
    streams.add_column("state")
    for one in activity.streams:
        streams.add_row(
            one.step,
            "" if one.batch is None else f"{one.batch:,}",
            "" if one.seconds is None else f"{one.seconds:.1f} s",
            "" if one.rate is None else f"{one.rate:,.0f}",
            _unread(one, activity.at) or "nothing",
            _state(one, activity.at),
        )
    alerts = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    alerts.add_column("raised", no_wrap=True)
    alerts.add_column("rule", no_wrap=True)
    alerts.add_column("account", no_wrap=True)
    alerts.add_column("amount", no_wrap=True, justify="right")
    alerts.add_column("alert", no_wrap=True, overflow="ellipsis", ratio=1)
    for alert in activity.alerts:
        alerts.add_row(
            f"{alert['detected_at']:%H:%M:%S}",
            *map(escape, (alert["rule"], alert["account_id"])),
            f"{alert['amount']:,.2f}",
            escape(alert["explanation"] or ""),
        )
    parts: list[RenderableType] = [title, Text(), streams, Text(), alerts]
    return Group(*(parts if activity.alerts else parts[:3]))


def lines(activity: Activity) -> dict[str, str]:
    """Return lines by id: each stream's latest micro-batch, then the latest alerts, the newest last."""
    lines_by_alert = {
        f"{one.step} {one.batch}": f"{one.committed_at:%Y-%m-%d %H:%M:%S} {one.step}: micro-batch {one.batch:,} took "
        f"{one.seconds:.1f} s"
        + ("" if one.rate is None else f"; {one.rate:,.0f} rows a second")
        + (f"; to read: {unread}" if (unread := _unread(one)) else "")
        for one in activity.streams
        if one.batch is not None
    }
    for alert in reversed(activity.alerts):
        raised = f"{alert['detected_at']:%Y-%m-%d %H:%M:%S}"
        lines_by_alert[alert["alert_id"]] = (
            f"{raised} alert {alert['alert_id']} of {alert['rule']}: {alert['explanation']}"
        )
    return lines_by_alert or {"": NOTHING}


def _unread(one: StreamActivity, now: datetime | None = None) -> str:
    """Describe the unread input of a stream; empty if there is none."""
    parts = [counted(one.unread_rows, "row")] if one.unread_rows else []
    if one.unread_files or one.unread_commits:
        parts.append(f"{one.unread_files:,} files" if one.unread_files else counted(one.unread_commits, "commit"))
    if one.unread_since and now:
        parts.append(age(one.unread_since, now))
    return ", ".join(parts)


def _state(one: StreamActivity, now: datetime) -> Text:
    if one.running_since:
        return Text(f"in a micro-batch for {age(one.running_since, now)}", style="green")
    return Text(f"idle for {age(one.committed_at, now)}" if one.committed_at else "", style="dim")
