"""Commands from Flink to silver: simulate, ingest, refine, quarantine."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.process.stop import StoppedError
from fraudlake.text.counts import counted
from fraudlake_cli.app import KAFKA, QUALITY, STREAMING, App, cli, options, run_step
from fraudlake_cli.command import time_of
from fraudlake_cli.output import summary
from fraudlake_cli.output.progress import console, output

if TYPE_CHECKING:
    from fraudlake.lake import Lake


@cli.command(example="fraudlake simulate --rows 100000 --bad 0.001")
@options("landing")
@click.option("--rows", type=int, help="Stop after this many rows.  [default: no limit]")
@click.option("--seconds", type=float, help="Stop after this many seconds.  [default: no limit]")
@click.option("--rate", type=float, default=1000.0, show_default=True, help="Transactions per second of event time.")
@click.option(
    "--real-time/--fast", default=None, help="Write at the rate, or at full speed.  [default: fast with --rows]"
)
@click.option("--start", default="2026-01-01", show_default=True, help="Event time of the first row (UTC), or 'now'.")
@click.option("--accounts", type=int, default=1000, show_default=True, help="Accounts that pay.")
@click.option(
    "--fraud", type=float, default=0.005, show_default=True, help="Share of rows that are fraud; --columns adds to it."
)
@click.option("--out-of-order", type=float, default=0.0, show_default=True, help="Share of rows that come late.")
@click.option("--disorder", type=float, default=5.0, show_default=True, help="Maximum delay of late rows, in seconds.")
@click.option("--bad", type=float, default=0.0, show_default=True, help="Share of rows that break a quality rule.")
@click.option(
    "--columns",
    is_flag=True,
    help="Also write merchantId, terminalId, deviceId, and fraud at terminals, with stolen cards and of large amounts; "
    "print the setting for the fields, unless columns are declared.",
)
@click.option(
    "--compromised-days",
    type=float,
    help="With --columns: days for which a terminal is compromised; a card is stolen for half as long.  "
    "[default: until an average terminal has had 28 payments]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same rows.")
@click.option("--file-rows", type=int, default=100_000, show_default=True, help="Rows in a file.")
@click.option("--truth", type=click.Path(path_type=Path), help="Folder for the ground truth, row by row.")
@click.option(
    "--chargebacks",
    type=click.Path(path_type=Path),
    help="Folder for the frauds as banks report them, 5 to 20 days later: a CSV file a day.",
)
@click.pass_obj
def simulate(app: App, /, landing: str | None, real_time: bool | None, start: str, **options: Any) -> None:
    """Write card transactions as Flink would → the landing folder.

    Needs neither Flink nor Spark. Writes finished parquet files until --rows, --seconds or Ctrl-C.
    """
    from fraudlake_tools import simulator

    wanted = app.settings(landing=landing)
    begin = datetime.now(UTC) if start == "now" else time_of("--start", start)
    limits = {name: options.pop(name) for name in ("rows", "seconds", "file_rows", "truth", "chargebacks")}
    of_all = f" of {limits['rows']:,}" if limits["rows"] is not None else ""
    written = 0
    end = None

    def count(rows: int) -> None:
        nonlocal written
        written = rows
        spinner.update(f"simulate: {rows:,}{of_all} rows")

    try:
        with console.status("simulate") as spinner:
            traffic = simulator.Traffic(start=begin, **options)
            paced = limits["rows"] is None if real_time is None else real_time
            simulator.simulate(Path(wanted.landing_path), traffic, real_time=paced, progress=count, **limits)
    except ValueError as error:
        named = re.sub(r"^(\w+)=", lambda name: f"--{name[1].replace('_', '-')} ", str(error))
        raise UsageError(named) from None
    except StoppedError as stopped:  # the usual end of an endless source
        end = stopped
        end.then = "all landed files are complete; the same command starts again with its first row"
    text = f"{counted(written, 'row')} landed in {wanted.landing_path}"
    if options["columns"] and not wanted.columns:
        text += (
            "; these lines of fraudlake.toml declare the further fields (run 'fraudlake define' if there is a lake):"
        )
        text += f"\n\n{simulator.DECLARATION}"
    app.say({"landing": wanted.landing_path, "rows": written}, text)
    if end is not None:
        raise end


@cli.command(example="fraudlake ingest --landing /where/flink/writes")
@options(
    "landing",
    "landing_timezone",
    "payload",
    "columns",
    "max_files_per_trigger",
    "max_bytes_per_trigger",
    "max_value_size",
    *KAFKA,
    "fast_alerts_topic",
    *STREAMING,
)
@click.option("--retry-rejected", is_flag=True, help="First read rejected files again, also unchanged ones.")
@click.pass_obj
def ingest(app: App, /, retry_rejected: bool, **flags: str | None) -> None:
    """Landed parquet files, or a Kafka topic → bronze_transactions.

    Reads the landing folder, each file once; writes bronze_transactions, bronze_files (what became of each file), and
    bronze_rejected_files for files that cannot be read. With --source kafka reads a topic instead, and with
    --fast-alerts-topic also that of the fast lane, into bronze_fast_alerts. Needs: files that Flink has finished, or
    messages.
    """
    from fraudlake.streams import ingest

    lake = app.open_for_ingest(**flags)
    run_step(app, lake, ingest.streams(lake, retry_rejected))


@cli.command(example="fraudlake refine --max-ahead '2 hours'")
@options(*QUALITY, *STREAMING)
@click.pass_obj
def refine(app: App, /, **flags: str | None) -> None:
    """bronze_transactions → silver_transactions, silver_quarantine.

    Reads new rows of bronze_transactions; writes those that fulfil every quality rule to silver_transactions and
    the others, with the reasons, to silver_quarantine. Needs: ingest.
    """
    from fraudlake.streams import refine

    lake = app.open_for_streams("refine", **flags)
    run_step(app, lake, refine.streams(lake))
    note_no_valid_row(lake)


def note_no_valid_row(lake: Lake) -> None:
    """Print a note if the lake has no valid row, though rows have landed."""
    if lake.store.has_rows(tables.SILVER_TRANSACTIONS):
        return
    quarantined = lake.store.count(tables.SILVER_QUARANTINE)
    if quarantined:
        console.print(f"[yellow]![/] {summary.no_valid_row(quarantined)}", soft_wrap=True)


@cli.command(example="fraudlake quarantine --rule amount_is_positive --limit 10")
@click.option("--rule", metavar="NAME", help="Only rows that broke this quality rule.")
@click.option("--limit", type=click.IntRange(min=0), default=3, show_default=True, help="Samples for each rule.")
@click.option("--replay", "is_replay", is_flag=True, help="Check the rows again, and move valid ones to silver.")
@click.option("--set", "assignments", metavar="COLUMN=SQL", multiple=True, help="With --replay: replace a value first.")
@options(*QUALITY)
@click.pass_obj
def quarantine(
    app: App, /, rule: str | None, limit: int, is_replay: bool, assignments: tuple[str, ...], **flags: str | None
) -> None:
    """Show the rows in quarantine and the reasons, or move them to silver after a correction.

    Reads silver_quarantine: rows by quality rule, with samples. --replay checks the rows again, after a setting was
    corrected or with values replaced (--set "amount=abs(amount)"). It moves valid rows to silver_transactions, exactly
    once, and the later steps process them as new rows. Late rows are already in silver and stay. Needs: refine, which
    must not be running; if it was killed in a micro-batch, that micro-batch is finished first.
    """
    from fraudlake.quarantine import replay, show
    from fraudlake.streams import refine, stream

    malformed = next((item for item in assignments if not item.partition("=")[2].strip()), None)
    if malformed is not None:
        raise UsageError(f"--set {malformed}: must be COLUMN=SQL, such as amount=abs(amount)")
    if assignments and not is_replay:
        raise UsageError("--set replaces values for --replay: give both")
    if is_replay:
        lake = app.open(**flags)
        if lake.checkpoint("refine").pending_batch() is not None:
            stream.run(lake, refine.streams(lake), "available-now")
        replaced = {name.strip(): sql for name, _, sql in (item.partition("=") for item in assignments)}
        with console.status("replay"):
            done = replay.replay(lake, rule, replaced)
        app.say(asdict(done), summary.replayed(done))
        return
    lake = app.open_existing(**flags)
    with console.status("reading the quarantine"):
        rows = show.quarantine(lake, rule, limit)
    app.show(asdict(rows), lambda: summary.print_quarantine(output, rows))
