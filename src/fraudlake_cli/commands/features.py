"""Commands for the declared features: features list, check, apply."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fraudlake.text import json_text
from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.command import require_new
from fraudlake_cli.commands.definition import described, redefined
from fraudlake_cli.commands.model import EVALUATED
from fraudlake_cli.commands.rule_changes import signed

if TYPE_CHECKING:
    from fraudlake.feature import Feature


@cli.group(name="features", example="fraudlake features check features.toml")
def features_() -> None:
    """Declare features of accounts and other entities, which models learn and score with."""


@features_.command(name="list", example="fraudlake features list")
@click.pass_obj
def list_(app: App, /) -> None:
    """List the features of the lake: its own, and those that it declares."""
    from fraudlake.feature import OWN

    declared = app.settings_of_lake().features
    width = max(len(feature.name) for feature in (*OWN, *declared))
    lines = [f"{feature.name:<{width}}  {feature.meaning}" for feature in (*OWN, *declared)]
    app.say({"own": _as_json(OWN), "declared": _as_json(declared)}, "\n".join(lines))


@features_.command(example="fraudlake features check features.toml")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_obj
def check(app: App, /, file: Path) -> None:
    """Check whether the features of FILE are valid, for the columns and entities of the lake if there is one.

    FILE is a TOML file with [[features]] entries, as in the settings.
    """
    from fraudlake.settings.features import read, require_declared, require_kept

    settings = app.settings_of_lake()
    declared = read(file)
    require_declared(declared, settings.silver_columns, settings.entities, settings.flink_delay)
    require_kept(declared, settings.row_retention)
    lines = [f"{feature.name}: {feature.meaning}" for feature in declared]
    app.say({"valid": _as_json(declared)}, "\n".join(lines) or "no features")


@features_.command(example="fraudlake features apply features.toml --yes")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Change the lake. Without this flag, only show the changes.")
@signed
@click.pass_obj
def apply(app: App, /, file: Path, yes: bool, author: str | None, reason: str | None) -> None:
    """Replace the declared features of the lake by those of FILE; with --yes no step may run.

    Nothing else of the lake changes, whatever the settings say: 'fraudlake define' changes that.

    The next 'score' computes them, new ones with the history that they look back to; the next 'train' learns them.
    """
    from fraudlake.settings.features import read

    wanted = app.settings(features=json_text.dumps(_as_json(read(file))))
    _, changes = redefined(wanted, yes, author, reason, ["features"])
    app.say({"changes": changes}, described(changes, yes))


@features_.command(example="fraudlake features suggest")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("features.toml"),
              show_default=True, metavar="FILE", help="File to write; it must not exist.")  # fmt: skip
@options(*EVALUATED)
@click.pass_obj
def suggest(app: App, /, out: Path, **flags: str | None) -> None:
    """silver_transactions, silver_verdicts → a file of features that help on history.

    Proposes features from the columns and entities of the lake, and tries them by groups on history: as known at the
    time, on rows before those that 'train' tests on. The file says what each group gives and costs. Changes nothing:
    see 'fraudlake features apply'. Needs: refine.
    """
    from fraudlake.model import suggestion
    from fraudlake_cli.output.parts import progress_bar

    require_new(out)
    lake = app.open(**flags)
    with progress_bar("suggest", "features") as progress:
        suggested = suggestion.suggest(lake, progress)
    written = f"{out}: {counted(len(suggested.features), 'feature')}"
    if suggested.features:
        out.write_text(suggested.toml())
    else:
        written = "no group helps by more than chance: no file is written"
    app.say(suggested.as_json() | {"file": str(out) if suggested.features else None}, f"{suggested.text()}\n{written}")


def _as_json(declared: Sequence[Feature]) -> list[dict[str, object]]:
    return [feature.model_dump(mode="json") for feature in declared]
