"""The command realtime: runs the fast lane, from topic to topic."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import TypeAdapter, ValidationError

from fraudlake.errors import MissingLakeError, UsageError
from fraudlake.times.durations import Duration
from fraudlake_cli.app import QUALITY, App, cli, options
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fraudlake.rules.kinds import Rule
    from fraudlake.rules.rule_set import Status
    from fraudlake_lane.lane import Totals


@cli.command(example="fraudlake realtime --bootstrap-servers broker:9092 --fast-alerts-topic fast-alerts")
@options(
    "bootstrap_servers",
    "topic",
    "fast_alerts_topic",
    "starting_offsets",
    "fail_on_data_loss",
    "kafka_secret",
    "realtime_batch",
    *QUALITY,
)
@click.option("--rules", "file", type=click.Path(path_type=Path), help="File with [[rules]], instead of the lake's.")
@click.option("--without-end", is_flag=True, help="Keep each account's last rows permanently, not for a time.")
@click.option("--for", "duration", metavar="DURATION", help="How long to run.  [default: until stopped]")
@click.pass_obj
def realtime(app: App, /, file: Path | None, without_end: bool, duration: str | None, **flags: str | None) -> None:
    """Kafka → Kafka: raise alerts milliseconds after their transaction, in parallel to the lake.

    Reads the topic of transactions in Spark's Real-time Mode and writes fast_alerts_topic, until it is stopped. Each
    alert comes at least once. The rules are the live ones of the lake or, if there is no lake yet, those of the
    settings. Needs a separate environment ('make realtime').
    """
    from fraudlake.settings import secret
    from fraudlake_lane import messages, rules, session

    settings = app.settings(**flags)
    missing = next(
        (name for name in ("bootstrap_servers", "fast_alerts_topic") if getattr(settings, name) is None), None
    )
    if missing is not None:
        raise UsageError(f"realtime needs --{missing.replace('_', '-')}, or {missing} in the settings")
    session.require_spark()
    settings = app.settings_of_lake(**flags)
    messages.require_flinks(settings)
    time = None if duration is None else _duration(duration)
    entries = [*(rules_of_lake(app, flags) if file is None else rules_of_file(file))]
    chosen = rules.choose(entries, without_end)
    for name, reason in chosen.refused.items():
        console.print(f"{name} runs in 'fraudlake detect' only: {reason}", markup=False, soft_wrap=True)

    names = ", ".join(map(str, (*chosen.pairs, *chosen.thresholds)))

    def started(partitions: int, since: datetime | None) -> None:
        line = f"realtime: {settings.topic} ({partitions} partitions) → {settings.fast_alerts_topic}, rules {names}"
        console.print(f"{line} (stop with Ctrl-C)", markup=False, soft_wrap=True)
        if since is not None and chosen.thresholds:
            line = f"thresholds look back to {since:%Y-%m-%d %H:%M:%S} UTC at most, when the state began"
            console.print(line, markup=False, soft_wrap=True)

    def progress(totals: Totals) -> None:
        console.print(f"realtime: {_line(totals)}", markup=False, soft_wrap=True)
        if file is None and _have_changed(app, flags, entries):
            console.print("the lake's rules have changed: restart the lane to use them")

    from fraudlake_lane import lane

    totals = lane.run(secret.with_kafka_options(settings), chosen, time, started, progress)
    app.say(totals.as_json() | {"refused": chosen.refused}, f"realtime: {_line(totals)}")


def rules_of_file(file: Path) -> Iterable[tuple[Rule, Status, int | None]]:
    """Return the rules of a file, without versions."""
    from fraudlake.rules import rule_file

    return ((rule, status, None) for rule, status in rule_file.read(file))


def rules_of_lake(app: App, flags: dict[str, str | None]) -> Iterable[tuple[Rule, Status, int | None]]:
    """Return the rules that ``detect`` evaluates; without a lake, those of a new lake."""
    from fraudlake.detection import rule_table
    from fraudlake.rules.rule_set import RuleSet

    try:
        rules = rule_table.read(app.open_existing(**flags))
    except MissingLakeError:
        rules = RuleSet.of(app.settings(**flags).rules)
    return ((version.rule, version.status, version.version) for version in rules.evaluated)


def _have_changed(app: App, flags: dict[str, str | None], entries: list[tuple[Rule, Status, int | None]]) -> bool:
    """Return whether the lake's live rules have changed; not in a workspace, where the check would slow the lane."""

    def live(rules: Iterable[tuple[Rule, Status, int | None]]) -> list[tuple[Rule, int | None]]:
        return [(rule, version) for rule, status, version in rules if status == "live"]

    try:
        return not app.settings(**flags).is_in_workspace and live(rules_of_lake(app, flags)) != live(entries)
    except Exception:  # an error in the lake must not stop the lane
        return False


def _line(totals: Totals) -> str:
    return (
        f"{totals.batches:,} batches committed, in them {totals.messages:,} messages, {totals.rejected:,} rejected, "
        f"{totals.other_keys:,} with another key, {totals.late:,} late, {totals.crowded:,} crowded; "
        f"state of {totals.state_rows:,} rows"
    )


def _duration(text: str) -> timedelta:
    try:
        return TypeAdapter(Duration).validate_python(text)
    except ValidationError as error:
        raise UsageError(f"--for {text}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
