"""The command that proposes rules: rules suggest."""

from __future__ import annotations

from pathlib import Path

import click

from fraudlake.text.counts import counted
from fraudlake.values import accounts_a_day
from fraudlake_cli.app import App, options
from fraudlake_cli.command import require_new
from fraudlake_cli.commands.rules import rules_
from fraudlake_cli.output.parts import progress_bar


class _Budget(click.ParamType[int]):
    """A budget such as ``50 accounts a day``."""

    name = "budget"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of accounts."""
        accounts = accounts_a_day(value)
        if accounts is None:
            self.fail(f"{value!r} is not a budget: write one such as '50 accounts a day'", param, ctx)
        return accounts


@rules_.command(example="fraudlake rules suggest --budget '50 accounts a day'")
@click.option("--budget", type=_Budget(), required=True, metavar="BUDGET",
              help="Accounts with alerts beside those of live rules, such as '50 accounts a day'.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("suggested_rules.toml"),
              show_default=True, metavar="FILE", help="File to write; it must not exist.")  # fmt: skip
@options("holdout", "labels", "label_delay", "genuine_after", "train_from")
@click.pass_obj
def suggest(app: App, /, budget: int, out: Path, **flags: str | None) -> None:
    """silver_transactions, silver_verdicts → a file of thresholds that find fraud which live rules do not.

    Tries thresholds over the columns and entities of the lake, chooses a few on history before the days that 'train'
    tests on, and measures them on those days. The file says what each adds. Changes nothing: 'fraudlake rules add
    FILE' makes drafts of them. Needs: detect.
    """
    from fraudlake.model import rule_suggestion

    require_new(out)
    lake = app.open(**flags)
    with progress_bar("suggest", "thresholds") as progress:
        suggested = rule_suggestion.suggest(lake, budget, progress)
    written = f"{out}: {counted(len(suggested.rules), 'rule')}"
    if suggested.rules:
        out.write_text(suggested.toml())
    else:
        written = "no threshold adds enough fraud, within the budget, to what live rules find: no file is written"
    app.say(suggested.as_json() | {"file": str(out) if suggested.rules else None}, f"{suggested.text()}\n{written}")
