"""The command deliver: sends alerts out of the lake."""

from __future__ import annotations

from dataclasses import asdict

import click

from fraudlake.delivery.destinations import DESTINATIONS
from fraudlake.text.counts import counted
from fraudlake_cli.app import STREAMING, App, cli, options, run_step
from fraudlake_cli.output.progress import console


@cli.command(example="fraudlake deliver --to file --delivery-folder alerts")
@click.option("--to", type=click.Choice([*DESTINATIONS]), required=True, help="Where alerts go.")
@click.option("--from-now", is_flag=True, help="Start a new destination with the next alert that is raised.")
@click.option("--retry-dead", is_flag=True, help="Only send dead letters again.")
@options(
    *(name for destination in DESTINATIONS.values() for name in destination.flags),
    "delivery_secret",
    "suppress_within",
    "max_alerts_per_minute",
    *STREAMING,
)
@click.pass_obj
def deliver(app: App, /, to: str, from_now: bool, retry_dead: bool, **flags: str | None) -> None:
    """silver_alerts → a log, files, a Kafka topic, a webhook or a database; and silver_deliveries.

    Reads new alerts, by default from the first one in the lake. Sends each at least once, with its alert_id, and
    records the outcome in silver_deliveries. An alert that cannot be delivered is a dead letter, which --retry-dead
    sends again. Needs: detect.
    """
    from fraudlake.streams import deliver

    if not retry_dead:
        lake = app.open_for_streams(deliver.step_of(to), **flags)
        run_step(app, lake, deliver.streams(lake, to, from_now))
        return
    lake = app.open_existing(**flags)
    with console.status("retry"):
        retried = deliver.retry_dead(lake, to)
    text = f"{counted(retried.delivered, 'dead letter')} delivered to {to}; {retried.dead:,} remain"
    app.say({"destination": to, **asdict(retried)}, text)
