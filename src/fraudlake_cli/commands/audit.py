"""Commands that prove what people did: audit verify, export and verify-export."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.tables import SILVER_APPROVAL_EVENTS, SILVER_REVIEW_EVENTS
from fraudlake.text.counts import counted
from fraudlake_cli.app import App, cli, options
from fraudlake_cli.command import require_new

if TYPE_CHECKING:
    from fraudlake.lake.chain import Verified
    from fraudlake.review.audit_file import Part

_FILE = click.Path(path_type=Path, dir_okay=False)
_WHAT = {SILVER_REVIEW_EVENTS.name: "the review", SILVER_APPROVAL_EVENTS.name: "approvals"}


@cli.group(example="fraudlake audit verify")
def audit() -> None:
    """Check that nobody has changed what is on record of the review and of approvals."""


@audit.command(example="fraudlake audit verify --known 1204:9f86d081…")
@click.option("--known", metavar="NUMBER:HASH", help="A review event that was noted before: it must still be there.")
@click.option("--known-approval", metavar="NUMBER:HASH", help="The same for an event of approvals.")
@options("warehouse")
@click.pass_obj
def verify(app: App, /, known: str | None, known_approval: str | None, **flags: str | None) -> None:
    """Find events that were removed, altered or put between others: each has a hash of all before it.

    Note number and hash of the last events outside of the lake: who may write every file can write all hashes anew, and
    only --known finds that.
    """
    from fraudlake.review import audit_file

    store = app.open_store(**flags)
    noted = (_parse_event("--known", known), _parse_event("--known-approval", known_approval))
    verified = audit_file.verify(store, *noted)
    for table, one in verified.items():
        if one.faults:
            more = f", and {len(one.faults) - 1} more" if len(one.faults) > 1 else ""
            raise FraudlakeError(f"{store.name}: {one.faults[0]}{more}: DESCRIBE HISTORY {table} says who wrote what")
    lines = [_line(_WHAT[table], one) for table, one in verified.items()]
    app.say({table: asdict(one) for table, one in verified.items()}, "\n".join(lines))


@audit.command(example="fraudlake audit export --year 2026 --key audit.pem --out audit-2026.zip")
@click.option("--year", type=click.IntRange(1970, 9999), required=True, help="Year (UTC) of the events.")
@click.option("--key", type=_FILE, required=True, metavar="FILE", help="PEM file with the private Ed25519 key.")
@click.option("--out", type=_FILE, required=True, metavar="FILE", help="File to write; it must not exist.")
@options("warehouse")
@click.pass_obj
def export(app: App, /, year: int, key: Path, out: Path, **flags: str | None) -> None:
    """Write the events of a year into one signed file, which can be checked without the lake."""
    from fraudlake.review import audit_file

    require_new(out)
    content, parts = audit_file.export(app.open_store(**flags), year, key)
    try:
        with out.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    app.say({"out": str(out), "parts": [asdict(part) for part in parts]}, f"{out}: {_parts(parts)}")


@audit.command("verify-export", example="fraudlake audit verify-export audit-2026.zip --key audit.pub.pem")
@click.argument("file", type=_FILE)
@click.option("--key", type=_FILE, required=True, metavar="FILE", help="PEM file with the signer's public key.")
@click.pass_obj
def verify_export(app: App, /, file: Path, key: Path) -> None:
    """Check FILE of 'audit export': who signed it, and that its events are as they were."""
    from fraudlake.review import audit_file

    manifest, parts = audit_file.verify_export(file, key)
    app.say(manifest, f"{file}: {manifest['lake']} in {manifest['year']}, as it was signed: {_parts(parts)}")


def _line(what: str, verified: Verified) -> str:
    erased = f"; forget has erased parts of {verified.erased:,}" if verified.erased else ""
    last = f"; the last is {verified.events}:{verified.head}" if verified.events else ""
    return f"{what}: {counted(verified.events, 'event')} as written{erased}{last}"


def _parts(parts: list[Part]) -> str:
    return ", ".join(f"{counted(part.events, 'event')} of {_WHAT[part.table]}" for part in parts)


def _parse_event(option: str, text: str | None) -> tuple[int, str] | None:
    if text is None:
        return None
    number, _, hash_ = text.partition(":")
    if not number.isdecimal() or not re.fullmatch("[0-9a-f]{64}", hash_):
        raise UsageError(f"{option} takes the number of an event and its hash, such as 1204:9f86d081…")
    return int(number), hash_
