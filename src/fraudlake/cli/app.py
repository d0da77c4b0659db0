"""The application: the options that stand before a command, and how commands share flags and print results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake import __version__, json_text, settings
from fraudlake.cli.progress import console, run_streams, unit
from fraudlake.cli.terminal import printable
from fraudlake.settings import Settings

if TYPE_CHECKING:
    from fraudlake.lake import Lake

STREAMING = ("trigger", "interval")
QUALITY = ("columns", "timestamp_floor", "max_ahead", "warn")
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
RULES = ("small_below", "large_above", "within")
_SENTENCE = 500
"""Characters that the first sentence of a command's help may have."""


@dataclass(frozen=True)
class App:
    """The options that stand before the command."""

    lake: Path | None
    catalog: str | None
    schema: str | None
    config: Path | None
    json: bool

    def settings(self, **flags: object) -> Settings:
        """Load the settings, with a command's own flags first."""
        return settings.load(self.config, lake=self.lake, catalog=self.catalog, schema_name=self.schema, **flags)

    def open(self, **flags: object) -> Lake:
        """Open the lake, making what is missing."""
        from fraudlake.lake import open_lake

        wanted = self.settings(**flags)
        with console.status("starting Spark"):
            return open_lake(wanted)

    def open_existing(self, **flags: object) -> Lake:
        """Open the lake to read it: it must be there, and nothing is made."""
        from fraudlake.lake import open_lake

        wanted = self.settings(**flags)
        with console.status("opening the lake"):
            return open_lake(wanted, must_exist=True)

    def say(self, result: dict[str, Any], text: str) -> None:
        """Print the result: one JSON object, or a line for a person."""
        self.show(result, lambda: click.echo(printable(text)))

    def show(self, result: dict[str, Any], print_text: Callable[[], None] = lambda: None) -> None:
        """Print the result: one JSON object, or what ``print_text`` prints for a person."""
        if self.json:
            click.echo(json_text.dumps(result))
        else:
            print_text()


def options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command flags for settings; their values are checked where all settings are."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(names):
            field = Settings.model_fields[name]
            command = click.option(f"--{name.replace('_', '-')}", name, metavar="VALUE", help=field.description)(
                command
            )
        return command

    return decorate


class Commands(click.Group):
    """A group whose help lists its commands with a whole sentence each; click cuts off what is longer than a line."""

    group_class = type  # the groups within it, too

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_SENTENCE)) for name, command in commands if command])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lake", type=click.Path(path_type=Path), help="Folder of the lake.  [default: ./lake]")
@click.option("--catalog", metavar="NAME", help="Catalog of a lake in a Databricks workspace, instead of --lake.")
@click.option("--schema", metavar="NAME", help="Its schema.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file.  [default: ./fraudlake.toml, if there]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output and nothing else.")
@click.version_option(__version__, prog_name="fraudlake")
@click.pass_context
def cli(
    context: click.Context,
    lake: Path | None,
    catalog: str | None,
    schema: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Fraud detection on a lakehouse: Flink's transactions become alerts and scores.

    Every setting can also be given as FRAUDLAKE_<NAME> in the environment or as a line of fraudlake.toml.
    """
    context.obj = App(lake, catalog, schema, config, as_json)


def run_step(app: App, step: str, flags: dict[str, str | None], **arguments: Any) -> Lake:
    """Run a step's streams under the flags of its command, and print what each did; return the lake."""
    from fraudlake import steps

    lake = app.open(**flags)
    done = run_streams(lake, getattr(steps, step)(lake, **arguments), lake.settings.trigger)
    text = "\n".join(
        f"{stream.step}: {stream.rows:,} {unit(stream.step)} in {stream.batches} micro-batches" for stream in done
    )
    app.say({"streams": [asdict(item) for item in done]}, text)
    return lake
