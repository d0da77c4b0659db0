"""Commands for the model: train, verdicts, disputes, score, and model list, compare, promote, rollback."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from fraudlake.errors import FraudlakeError, UsageError, reason_of
from fraudlake.text.counts import counted
from fraudlake_cli.app import KAFKA, MODEL, STREAMING, App, cli, follow_reviews, options, run_step
from fraudlake_cli.command import Day
from fraudlake_cli.output import summary
from fraudlake_cli.output.progress import console, output, print_done, timed

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.model.intervals import Estimate
    from fraudlake.model.training import Outcome
    from fraudlake.settings.disputes import Format

EVALUATED = (
    *("threshold", "alert_budget", "alert_cost", "holdout"),
    *("labels", "label_delay", "genuine_after", "train_from"),
)
"""The settings that decide what a model learns from and how it is evaluated."""
_NO_FOLDER = "the setting disputes names no folder"
_reason = click.option("--reason", help="Why, for the second person, if the lake needs two.")
_LISTED = 10
"""Maximum number of unknown ids in a message."""


@cli.command(example="fraudlake train --labels verdicts")
@options(*MODEL, *EVALUATED, "algorithm", "max_training_rows", "promotion_metric", "auto_promote")
@click.pass_obj
def train(app: App, /, **flags: str | None) -> None:
    """silver_transactions, silver_verdicts → a registered model.

    Reads silver_transactions with Flink's label or analysts' verdicts; writes boosted trees to MLflow, tested on the
    latest part of the history. The first version becomes the champion, which scores; a later version does if it beats
    the champion. Does nothing if the latest version learned from the same rows under the same settings. Needs: refine.
    """
    lake = app.open(**flags)
    follow_reviews(lake)
    result = train_with_progress(lake)
    app.say(result, _trained(result))


def train_with_progress(lake: Lake) -> dict[str, Any]:
    """Train with a progress bar; return what the command prints."""
    from fraudlake.model import training
    from fraudlake_cli.output.parts import progress_bar

    begun = time.monotonic()
    with progress_bar("train", "features") as progress:
        outcome = training.train(lake, progress)
    print_done("train", f"model version {outcome.version.number}{'' if outcome.is_new else ', up to date'}", begun)
    return _result(outcome)


def train_if_enough(lake: Lake) -> dict[str, Any] | None:
    """Train if enough has changed; if the lake has too little data, print a warning and return None."""
    from fraudlake.model import training
    from fraudlake.model.search import TooLittleError

    begun = time.monotonic()
    outcome = training.unless_changed(lake)
    if outcome is not None:
        print_done("train", outcome.reason, begun)
        return _result(outcome)
    try:
        return train_with_progress(lake)
    except TooLittleError as error:
        console.print(f"[yellow]![/] {error}", soft_wrap=True)
        return None


def _result(outcome: Outcome) -> dict[str, Any]:
    return {
        "version": outcome.version.number,
        "new": outcome.is_new,
        "champion": outcome.is_champion,
        "reason": outcome.reason,
        "metrics": outcome.version.metrics,
        "kinds": [{**asdict(kind), "new": kind.is_new} for kind in outcome.kinds],
    }


def _trained(result: dict[str, Any]) -> str:
    reason = f"\n{result['reason']}" if result["reason"] else ""
    state = "" if result["new"] else " is up to date"
    kinds = [_kind(kind) for kind in result["kinds"]]
    if len(kinds) > _LISTED:
        kinds[_LISTED:] = [f"and {len(kinds) - _LISTED:,} more, which --json lists"]
    listed = "".join(f"\n  {kind}" for kind in kinds)
    heading = "\nfraud of the test days, by rule or, without one, by the model's strongest reason:" if kinds else ""
    figures = summary.figures(result["metrics"])
    return f"model version {result['version']}{state}: {figures}{heading}{listed}{reason}"


def _kind(of: dict[str, Any]) -> str:
    learned = "new" if of["new"] else f"{of['learned']:,} learned"
    share = f"{100 * of['found'] / of['tested']:.0f} %"
    return f"{of['name']}: {learned}, {of['tested']:,} tested, {of['found']:,} found at the budget ({share})"


@cli.command(example="fraudlake verdicts decisions.csv")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--map", "map_", metavar="NAME=FIELD,…", help="The file's fields: 'verdict=outcome, reason=code'.")
@click.option("--verdict", type=click.Choice(["fraud", "genuine"]), help="The verdict of all rows.")
@click.option("--reference", metavar="COLUMN", help="Declared column that the file's field reference is equal to.")
@click.option("--tolerance", metavar="DURATION", help="How far timestamp may be from the payment's.  [default: 0 s]")
@click.option("--encoding", help="Encoding of a CSV file, such as cp1252.  [default: UTF-8]")
@click.option("--date-pattern", metavar="PATTERN", help="Pattern of decided_at: '%d.%m.%Y'.  [default: ISO 8601]")
@click.option("--timestamp-pattern", metavar="PATTERN", help="Pattern of timestamp.  [default: that of decided_at]")
@click.pass_obj
def verdicts(app: App, /, file: Path, map_: str | None, **flags: str | None) -> None:
    """Verdicts in FILE → silver_verdicts.

    Reads a CSV (with a header) or parquet file with verdict (true: fraud); what names the payment; and optionally
    analyst, reason and decided_at (UTC). A payment is named by transaction_id, alert_id or case_id, which stands for
    all transactions of the case; by reference; or by account_id, amount and timestamp. Loading the same file again adds
    nothing. Exit code 1 if rows match no payment, or several: they are listed, and written to FILE.unmatched.csv, and
    all other verdicts are loaded. Needs: refine.
    """
    from fraudlake.model import published
    from fraudlake.model import verdicts as decided

    of = _format({"map": map_, **flags})
    lake = app.open()
    with console.status("verdicts"):
        done = decided.load(lake, file, of)
    if published.champion_number(lake) is not None:
        then = "the figures of the model follow with the next 'fraudlake score'"
    else:
        then = "no model scores yet: 'fraudlake train' makes one"
    future = f"\n{counted(done.future, 'verdict')} dated in the future: training leaves each out until then"
    app.say(
        asdict(done),
        f"{counted(done.taken, 'verdict')} loaded, {done.known:,} were known already; "
        f"{then}{future if done.future else ''}",
    )
    if done.unknown:
        more = len(done.unknown) - _LISTED
        listed = ", ".join(done.unknown[:_LISTED]) + (f" and {more:,} more, which --json lists" if more > 0 else "")
        raise FraudlakeError(
            f"{file}: {counted(done.unmatched, 'row')} with no payment in this lake, or with several: not loaded, but "
            f"written to {decided.left_out_file(file).name}: {listed}"
        )


@cli.command(example="fraudlake disputes")
@options("disputes")
@click.pass_obj
def disputes(app: App, /, **flags: str | None) -> None:
    """New files of the folder of disputes → silver_verdicts.

    Loads each file of the folder that the setting disputes names, as the command verdicts does; again if it changes. A
    file that cannot be read or understood is named, does not stop the others, and is tried again each time. Rows that
    match no payment, or several, are written to FILE.unmatched.csv next to it, which is loaded once it is changed.
    Without the setting nothing is loaded. Needs: refine.
    """
    lake = app.open(**flags)
    files = load_disputes(lake)
    if files is None:
        app.say({"files": [], "skipped": _NO_FOLDER}, f"nothing is loaded: {_NO_FOLDER}")
        return
    total = sum(file["taken"] for file in files if file["error"] is None)
    app.say({"files": files}, f"{counted(total, 'verdict')} loaded from {counted(len(files), 'file')}")


def load_disputes(lake: Lake) -> list[dict[str, Any]] | None:
    """Load new files of the folder of disputes, and print those that need attention; None without such a folder."""
    from rich.markup import escape

    from fraudlake.model import dispute_folder

    folder = lake.settings.disputes
    if folder is None:
        return None
    files = []
    with timed("disputes") as report:
        for one in dispute_folder.load_new(lake, folder):
            files.append({"file": one.file, "error": one.error, **(asdict(one.loaded) if one.loaded else {})})
            left = counted(one.loaded.unmatched, "row") if one.loaded and one.loaded.unmatched else None
            problem = one.error or (left and f"{one.file}: {left} with no payment in this lake, or with several")
            if problem:
                console.print(f"[yellow]![/] {escape(problem)}", soft_wrap=True)
        report.append(counted(len(files), "file"))
    return files


def _format(flags: dict[str, str | None]) -> Format:
    from fraudlake.settings.disputes import Format

    try:
        return Format.model_validate({name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--{str(first['loc'][0]).replace('_', '-')}: {reason_of(first)}") from None


@cli.command(example="fraudlake score --from 2026-03-01 --to 2026-03-07")
@click.option("--from", "first", type=Day(), help="Score a range of dates again, from this day.")
@click.option("--to", "last", type=Day(), help="Last day of the range.  [default: the first]")
@click.option("--model-version", metavar="N", help="With --from: the version to score with.  [default: the champion]")
@options(*MODEL, "threshold", "alert_budget", "alert_cost", "labels", "genuine_after", "columns", *KAFKA, *STREAMING)
@click.pass_obj
def score(
    app: App, /, first: datetime | None, last: datetime | None, model_version: str | None, **flags: str | None
) -> None:
    """silver_transactions → gold_fraud_predictions, gold_prediction_quality, gold_feature_drift.

    Reads new rows of silver_transactions, or with --source kafka a topic; writes the champion's prediction for each,
    and the figures of the days that changed. With --from, scores a range of dates again with one version instead;
    repeating this changes nothing. Before the first train it says that nothing is scored. Needs: train.
    """
    if first is None:
        if last is not None or model_version is not None:
            raise UsageError("--to and --model-version need --from")
        _score_new_rows(app, flags)
        return
    from fraudlake.operations.backfill import backfill

    lake = app.open(**flags)
    with timed("backfill") as report:
        version, rows = backfill(lake, first.date(), (last or first).date(), model_version)
        report.append(f"{counted(rows, 'row')} under version {version}")
    app.say({"model_version": version, "rows": rows}, f"{counted(rows, 'transaction')} scored under version {version}")


def _score_new_rows(app: App, flags: dict[str, str | None]) -> None:
    """Score new rows; before the first model, only say so, since a scheduled run is not an error then."""
    from fraudlake.model.registry import NoModelError
    from fraudlake.streams import score

    lake = app.open_for_streams("score", **flags)
    try:
        # Only the flag counts: in a settings file `source` is that of ingest.
        run_step(app, lake, score.streams(lake, from_topic=flags["source"] == "kafka"))
    except NoModelError as error:
        if lake.settings.trigger == "continuous":
            raise
        app.say({"streams": [], "skipped": str(error)}, f"nothing is scored: {error}")


@cli.group(example="fraudlake model list")
def model() -> None:
    """Show the model's versions, compare them, promote one, or roll back."""


@model.command("list", example="fraudlake model list")
@options(*MODEL)
@click.pass_obj
def list_models(app: App, /, **flags: str | None) -> None:
    """Show all versions with their aliases and figures. Needs: train."""
    from fraudlake.model import registry

    lake = app.open_existing(**flags)
    with console.status("reading the versions"):
        versions = registry.versions(lake)
    result = {"versions": [{**asdict(version), "weakness": version.weakness} for version in versions]}
    app.show(result, lambda: summary.print_versions(output, versions))


@model.command(example="fraudlake model compare 3")
@click.argument("version", required=False)
@options(*MODEL, *EVALUATED, "promotion_metric")
@click.pass_obj
def compare(app: App, /, version: str | None, **flags: str | None) -> None:
    """Compare VERSION (default: the challenger) with the champion on rows that neither learned from. Needs: train."""
    from fraudlake.model import training
    from fraudlake_desk.queue import reviewed

    lake = app.open_existing(**flags)
    with timed("compare"):
        past = reviewed.read_reviewed(lake)
        comparison = training.compare(lake, version, past.weights() if past else None)
    estimates = {
        "differences": _estimates(comparison.differences),
        "weighted": {number: _estimates(of) for number, of in comparison.weighted.items()},
    }
    app.show({**asdict(comparison), **estimates}, lambda: summary.print_comparison(output, comparison))


def _estimates(of: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate._asdict() for name, estimate in of.items()}


@model.command(example="fraudlake model promote 3")
@click.argument("version", required=False)
@click.option("--force", is_flag=True, help="Promote without a comparison.")
@_reason
@options(*MODEL, *EVALUATED, "promotion_metric")
@click.pass_obj
def promote(app: App, /, version: str | None, force: bool, reason: str | None, **flags: str | None) -> None:
    """Make VERSION (default: the challenger) the champion if it beats the current one. Needs: train."""
    from fraudlake.model import training

    lake = app.open(**flags)
    with timed("promote"):
        promoted, compared = training.promote(lake, version, force, reason)
    app.say({"champion": promoted.number, "reason": compared}, f"version {promoted.number} is the champion: {compared}")


@model.command(example="fraudlake model rollback")
@_reason
@options(*MODEL)
@click.pass_obj
def rollback(app: App, /, reason: str | None, **flags: str | None) -> None:
    """Make the champion's predecessor the champion again. Needs: a promotion."""
    from fraudlake.model import champion

    lake = app.open(**flags)
    with console.status("rollback"):
        restored = champion.roll_back(lake, reason)
    app.say({"champion": restored.number}, f"version {restored.number} is the champion again")
