"""Commands that detect and aggregate fraud: detect, aggregate."""

from __future__ import annotations

import click

from fraudlake_cli.app import STREAMING, App, cli, follow_reviews, options, run_step
from fraudlake_cli.commands.rule_changes import note_other_rules


@cli.command(example="fraudlake detect --trigger continuous --interval '1 second'")
@options("ordering", "max_out_of_orderness", *STREAMING)
@click.pass_obj
def detect(app: App, /, **flags: str | None) -> None:
    """silver_transactions → silver_alerts.

    Reads new rows of silver_transactions through the stateful detector, under the rules of silver_rules; writes
    silver_alerts, and silver_shadow_alerts. The flags of the rule apply to a new lake only. Needs: refine.
    """
    from fraudlake.streams import detect

    lake = app.open_for_streams("detect", **flags)
    run_step(app, lake, detect.streams(lake))
    note_other_rules(lake)


@cli.command(example="fraudlake aggregate")
@options("ordering", "max_out_of_orderness", "bootstrap_servers", "fast_alerts_topic", *STREAMING)
@click.pass_obj
def aggregate(app: App, /, **flags: str | None) -> None:
    """silver_transactions, silver_alerts → gold_account_daily, gold_account_tiles, gold_detector_agreement, gold_cases.

    Reads new transactions and alerts; updates their days, tiles and cases, also earlier ones if rows come late. With
    --fast-alerts-topic also bronze_fast_alerts, silver_alerts → gold_lane_agreement. Needs: refine, detect.
    """
    from fraudlake.streams import aggregate

    lake = app.open_for_streams("aggregate", **flags)
    follow_reviews(lake)
    run_step(app, lake, aggregate.streams(lake))
    note_other_rules(lake)
