"""The command run: runs all steps in order, or some of them."""

from __future__ import annotations

import time
from typing import Any

import click

from fraudlake.errors import UsageError
from fraudlake.settings import Settings
from fraudlake_cli.app import App, cli, follow_reviews, options
from fraudlake_cli.commands import steps
from fraudlake_cli.commands.model import load_disputes, train_if_enough
from fraudlake_cli.commands.rule_changes import note_other_rules
from fraudlake_cli.output import summary
from fraudlake_cli.output.lake_figures import LakeFigures
from fraudlake_cli.output.progress import output, planned, run_streams, timed

_TRAINED = ("retrain_share", "train_every")
"""The settings that decide whether to train again."""


@cli.command(example="fraudlake --lake my-lake run --landing /where/flink/writes", params=steps.flags())
@click.option("--steps", "chosen", metavar="NAMES", help="Only these steps, as a list with commas.  [default: all]")
@options(*_TRAINED)
@click.pass_context
def run(context: click.Context, /, chosen: str | None, **flags: Any) -> None:
    """Run all steps in order: ingest, refine, disputes, detect, aggregate, train, score, optimize.

    With --steps runs only some, in this order, each as its own command does, in one process: --steps
    ingest,refine,detect. The list may end with status. With --trigger continuous all streams then run together until
    stopped. Needs: files that Flink has finished, or a Kafka topic (--source kafka).
    """
    if chosen is None:
        steps.require_flags(flags)
        _run_all(context.obj, {name: value for name, value in flags.items() if name in Settings.model_fields})
    else:
        for name in _TRAINED:
            if flags[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} cannot be used with --steps: the step train always trains")
        names = steps.names(chosen)
        steps.require_flags(flags, names)
        steps.run(context, names, flags)


def _run_all(app: App, flags: dict[str, Any]) -> None:
    from fraudlake.model.registry import Registry
    from fraudlake.operations import maintenance
    from fraudlake.streams import aggregate, detect, ingest, refine, score

    begun = time.monotonic()
    with planned(*(step for step in steps.COMMANDS if step != "status")) as is_done:
        lake = app.open_for_ingest(**flags)
        lake.steps = steps.streaming(steps.COMMANDS)
        follow_reviews(lake)
        for step in (ingest, refine):
            run_streams(lake, step.streams(lake), "available-now")
            is_done()
        disputes = load_disputes(lake)
        is_done()
        for step in (detect, aggregate):
            run_streams(lake, step.streams(lake), "available-now")
            is_done()
        trained = train_if_enough(lake)
        is_done()
        scoring = [score] if Registry.of(lake).champion() else []
        for step in scoring:
            run_streams(lake, step.streams(lake), "available-now")
            steps.aggregate_score_alerts(lake)
        is_done()
        with timed("optimize") as report:
            report.append(f"{len(maintenance.optimize(lake, report.parts('table')))} tables rewritten")
        is_done()
    if lake.settings.trigger == "continuous":
        streaming = (ingest, refine, detect, aggregate, *scoring)
        run_streams(lake, [stream for step in streaming for stream in step.streams(lake)], "continuous")
    note_other_rules(lake)
    figures = LakeFigures.of(lake)
    result = figures.as_dict() | {"model": trained}
    if disputes is not None:
        result["disputes"] = disputes
    seconds = time.monotonic() - begun
    app.show(result, lambda: summary.print_run(output, lake, figures, trained, seconds))
