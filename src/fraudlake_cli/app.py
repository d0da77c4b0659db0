"""The application: holds the options that every command takes, opens the lake, and prints results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake import settings
from fraudlake.process import extras, logs
from fraudlake.process.version import __version__
from fraudlake.settings import Settings
from fraudlake.text import json_text
from fraudlake.text.counts import counted
from fraudlake_cli.command import Commands, flag
from fraudlake_cli.output.progress import console, run_streams, unit
from fraudlake_cli.output.terminal import printable

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.lake.store import Store
    from fraudlake.streams.stream import Done, Stream

STREAMING = ("trigger", "interval", "metrics_address")
QUALITY = ("columns", "timestamp_floor", "max_ahead", "max_amount", "warn")
KAFKA = (
    "source",
    "bootstrap_servers",
    "topic",
    "starting_offsets",
    "max_offsets_per_trigger",
    "fail_on_data_loss",
    "kafka_secret",
)
MODEL = ("model_name", "experiment")


@dataclass
class App:
    """The options that every command takes."""

    lake: Path | None = None
    catalog: str | None = None
    schema: str | None = None
    config: Path | None = None
    json: bool = False

    def settings(self, **flags: object) -> Settings:
        """Load the settings, with a command's own flags first."""
        loaded = settings.load(self.config, lake=self.lake, catalog=self.catalog, schema_name=self.schema, **flags)
        logs.use(loaded.log_format == "json")
        return loaded

    def settings_of_lake(self, **flags: object) -> Settings:
        """Load the settings, with the lake's definition if there is a lake."""
        from fraudlake.errors import MissingLakeError

        try:
            return self.open_existing(**flags).settings
        except MissingLakeError:
            return self.settings(**flags)

    def open(self, **flags: object) -> Lake:
        """Open the lake, and create what is missing."""
        from fraudlake.lake import open_lake

        wanted = self.settings(**flags)
        with console.status("starting Spark"):
            return open_lake(wanted)

    def open_for_streams(self, *steps: str, **flags: object) -> Lake:
        """Open the lake to run the streams of some steps, and create what is missing."""
        lake = self.open(**flags)
        lake.steps = lake.steps or steps
        return lake

    def open_for_ingest(self, **flags: object) -> Lake:
        """Open the lake to ingest into it, and create what is missing, after checking that the source exists."""
        from fraudlake.streams import ingest

        wanted = self.settings(**flags)
        ingest.source_of(wanted).require(wanted)
        return self.open_for_streams("ingest", **flags)

    def open_existing(self, **flags: object) -> Lake:
        """Open the lake to read it: it must exist, and nothing is created."""
        from fraudlake.lake import open_lake

        wanted = self.settings(**flags)
        with console.status("opening the lake"):
            return open_lake(wanted, must_exist=True)

    def open_store(self, **flags: object) -> Store:
        """Open the lake's tables for the desk: without Spark, on this machine or through a SQL warehouse.

        In a workspace without the setting ``warehouse``, the Spark session of the compute is used.
        """
        wanted = self.settings(**flags)
        if not wanted.is_in_workspace:
            with extras.required("local"):
                from fraudlake.lake.local_store import LocalStore

            return LocalStore(wanted)
        if wanted.warehouse is None:
            return self.open_existing(**flags).store
        from fraudlake_workspace.warehouse import WarehouseStore

        with console.status("asking the warehouse"):
            return WarehouseStore(wanted)

    def run(self, lake: Lake, streams: list[Stream]) -> list[Done]:
        """Run the streams of a command under the lake's trigger."""
        return run_streams(lake, streams, lake.settings.trigger)

    def say(self, result: dict[str, Any], text: str) -> None:
        """Print the result: one JSON object, or text for a person."""
        self.show(result, lambda: click.echo(printable(text)))

    def show(self, result: dict[str, Any], print_text: Callable[[], None] = lambda: None) -> None:
        """Print the result: one JSON object, or the output of ``print_text`` for a person."""
        if self.json:
            click.echo(json_text.dumps(result))
        else:
            print_text()


def options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for settings; their values are checked with all settings."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(names):
            command = flag(name)(command)
        return command

    return decorate


class _Program(Commands):
    group_class = Commands

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        return super().make_context(info_name, args, parent, **{"obj": App(), **extra})


_TASKS = {
    "First steps": ("setup", "simulate", "run", "status", "watch", "define"),
    "Steps of a run": ("ingest", "refine", "disputes", "detect", "aggregate", "train", "score", "optimize"),
    "Alerts": ("explain", "deliver", "realtime", "state"),
    "Review": ("cases", "queue", "review", "decisions", "approvals", "audit", "desk", "goaml"),
    "Rules and models": ("rules", "lists", "features", "model", "verdicts", "rates"),
    "Corrections": ("quarantine", "replay", "restore", "forget"),
    "Databricks and Flink": ("workspace", "example"),
}


@click.group(
    cls=_Program,
    example="fraudlake --lake my-lake run --landing /where/flink/writes",
    tasks=_TASKS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="fraudlake")
def cli() -> None:
    """Fraud detection on a lakehouse: Flink's transactions become alerts and scores.

    Every setting can also be given as FRAUDLAKE_<NAME> in the environment or as a line of fraudlake.toml. The options
    below may come before or after a command.
    """


def person_of(store: Store, name: str | None) -> str:
    """Return the name under which somebody acts: see :func:`fraudlake.approvals.gate.person_of`."""
    from fraudlake.approvals import gate

    return gate.person_of(store, name)


def follow_reviews(lake: Lake) -> None:
    """Write the verdicts of the review that ``silver_verdicts`` lacks because a process was killed."""
    from fraudlake_desk.review import verdicts

    verdicts.follow(lake.store)


def run_step(app: App, lake: Lake, streams: list[Stream]) -> None:
    """Run a step's streams, and print the rows and micro-batches of each."""
    say_streams(app, app.run(lake, streams))


def say_streams(app: App, done: list[Done]) -> None:
    """Print the rows and micro-batches of streams."""
    text = "\n".join(
        f"{stream.step}: {counted(stream.rows, unit(stream.step))} in {counted(stream.batches, 'micro-batch')}"
        for stream in done
    )
    app.say({"streams": [asdict(item) for item in done]}, text)
