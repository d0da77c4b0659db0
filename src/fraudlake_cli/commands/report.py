"""The commands report and dossier: write a file about some days of a lake, or about a case."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from fraudlake_cli.app import App, cli
from fraudlake_cli.command import Day
from fraudlake_cli.output.progress import timed


@cli.command(example="fraudlake report --from 2026-03-01 --to 2026-03-31 --out march.html", task="Review")
@click.option("--from", "first", type=Day(), help="First day.  [default: the lake's first]")
@click.option("--to", "last", type=Day(), help="Last day.  [default: the lake's last]")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), show_default=True,
              metavar="FILE", help="File to write.")  # fmt: skip
@click.pass_obj
def report(app: App, /, first: datetime | None, last: datetime | None, out: Path) -> None:
    """Health, rules, review and model of some days → one HTML file.

    Without --from and --to it has the last 30 days of the lake that are not in the future.

    The file needs no network and no script; it can be read on a screen of any size, light or dark, and on paper. Each
    figure is one of a table, which is named next to it. Starts no Java on a laptop, and writes nothing to the lake.
    Needs: a lake.
    """
    from fraudlake.operations.status import status
    from fraudlake_desk.documents import document, report

    now = datetime.now(UTC)
    store = app.open_store()
    days = report.days_of(store, first.date() if first else None, last.date() if last else None)
    with timed("report") as done:
        made = report.report(store, days, status(app.open_existing()))
        text = document.render(made, now)
        document.save(out, text)
        done.append(f"{len(text.encode()) / 1000:,.0f} kB")
    span = {"from": days.first, "to": days.last} if days else {"from": None, "to": None}
    app.say({"file": str(out), **span}, str(out))


@cli.command(example="fraudlake dossier 8972fc095d8a6183194bc81c05f027de --out dossier.html", task="Review")
@click.argument("case")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File to write.  [default: dossier-CASE.html]")  # fmt: skip
@click.pass_obj
def dossier(app: App, /, case: str, out: Path | None) -> None:
    """All that the lake holds about a case → one HTML file, for a dispute or a report to the authorities.

    CASE is the id of a case or of one of its alerts. The file has a cover, the case's rows with file and row, or topic
    and offset, what was known when, features as known then, versions of rules and model, review, and hashes; it needs
    no network and no script. Starts no Java on a laptop, and writes nothing to the lake. Needs: aggregate.
    """
    from fraudlake_desk.documents import document
    from fraudlake_desk.documents.dossier import dossier

    made = dossier(app.open_store(), case)
    file = out or Path(f"dossier-{made.facts['case']}.html")
    document.save(file, document.render(made, datetime.now(UTC)))
    app.say({"file": str(file), "case": made.facts["case"]}, str(file))
