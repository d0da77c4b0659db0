"""Commands for rates of exchange: rates load, list, missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, person_of
from fraudlake_cli.output.progress import console


@cli.group(name="rates", example="fraudlake rates load rates.csv")
def rates_() -> None:
    """Load rates of exchange, by which amounts of several currencies become amounts of one."""


@rates_.command(example="fraudlake rates load ecb.csv --inverted")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--inverted", is_flag=True, help="A rate is what one unit of the base costs in the currency, as the ECB has."
)
@click.option("--correct", is_flag=True, help="Let rates that differ from present ones take their place.")
@click.option("--author", help="Who loads them.  [default: the user of this machine]")
@click.pass_obj
def load(app: App, /, file: Path, inverted: bool, correct: bool, author: str | None) -> None:
    """Rates in FILE → silver_rates.

    Reads a CSV (with a header) or parquet file with date, currency and rate: what one unit of the currency costs in
    the base currency. Loading the same file again adds nothing. A rate that differs from a present one is refused,
    with all others of the file, unless it is a correction. Payments that are in silver get later rates only by
    'fraudlake replay'. Needs: the setting currency.
    """
    from fraudlake.rates import rate_file, rate_table

    lake = app.open()
    base = rate_table.require_currency(lake.settings).base
    with console.status("rates"):
        table = rate_file.read(file, base, inverted)
        done = rate_table.load(lake.store, table, file.name, person_of(lake.store, author), correct)
        missing = rate_table.missing(lake.store)
    corrected = f", {done.corrected:,} corrected" if done.corrected else ""
    text = f"{counted(done.new, 'rate')} loaded{corrected}, {done.same:,} were known already"
    stays = ["payments of silver keep the amounts by the earlier rates: 'fraudlake replay' computes days again"]
    lines = [text, *(stays if done.corrected else []), *_advice(missing)]
    app.say({**asdict(done), "missing": _as_json(missing)}, "\n".join(lines))


@rates_.command(name="list", example="fraudlake rates list --currency USD")
@click.option("--currency", metavar="CODE", help="Show each rate of this currency.")
@click.pass_obj
def list_(app: App, /, currency: str | None) -> None:
    """List the currencies that have rates, or the rates of one, with those that were corrected."""
    from fraudlake.rates import rate_table

    lake = app.open_existing()
    base = rate_table.require_currency(lake.settings).base
    if currency is None:
        listed = rate_table.summary(lake.store)
        lines = [
            f"{row['currency']}  {row['first']} to {row['last']}  {counted(row['rates'], 'rate')}, the last is "
            f"{row['latest']!r} {base}"
            for row in listed
        ]
    else:
        listed = rate_table.read_currency(lake.store, currency.strip().upper())
        lines = [_rate(row, base) for row in listed]
    app.say({"base": base, "rates": listed}, "\n".join(lines) or "no rates: 'fraudlake rates load FILE' adds some")


@rates_.command(example="fraudlake rates missing")
@click.pass_obj
def missing(app: App, /) -> None:
    """List the days and currencies of payments that have no amount in the base currency."""
    from fraudlake.rates import rate_table

    missing_rates = rate_table.missing(app.open_existing().store)
    lines = [
        f"{row.date}  {row.currency or 'no currency'}  {counted(row.transactions, 'payment')}" for row in missing_rates
    ]
    app.say(
        {"missing": _as_json(missing_rates)}, "\n".join([*lines, *_advice(missing_rates)]) or "every payment has a rate"
    )


def _rate(row: dict[str, Any], base: str) -> str:
    corrected = "" if row["nth"] == 1 else "  corrected"
    return (
        f"{row['date']}  {row['rate']!r} {base}  {row['source']}, {row['author']} {row['at']:%Y-%m-%d %H:%M}{corrected}"
    )


def _as_json(missing: list[Any]) -> list[dict[str, Any]]:
    return [asdict(one) for one in missing]


def _advice(missing: list[Any]) -> list[str]:
    """Say how payments of silver get rates that have come later; nothing if none needs any."""
    if not missing:
        return []
    days = [one.date for one in missing]
    payments = counted(sum(one.transactions for one in missing), "payment")
    return [
        f"{payments} of silver without a rate: once their rates are loaded, run 'fraudlake replay --from {min(days)} "
        f"--to {max(days)} --apply'"
    ]
