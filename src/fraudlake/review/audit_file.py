"""Audit file: the events of the review and of the approvals of a year as one signed ZIP file, and the check of one.

The file has a line of JSON for each event, and a manifest with the hash of these lines and the place of the events in
their chains. An Ed25519 key (RFC 8032) signs the manifest, so that the events can be checked without the lake.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fraudlake.approvals import event as approval_event
from fraudlake.approvals import log
from fraudlake.errors import FraudlakeError, UsageError, file_reason
from fraudlake.lake import chain
from fraudlake.lake.chain import Verified
from fraudlake.review import event as review_event
from fraudlake.review import event_log
from fraudlake.tables import GOLD_FORGOTTEN, SILVER_APPROVAL_EVENTS, SILVER_REVIEW_EVENTS
from fraudlake.text import json_text

if TYPE_CHECKING:
    from fraudlake.lake.store import Store

_MANIFEST = "manifest.json"
_SIGNATURE = "manifest.sig"
_EVENTS: dict[str, type[Any]] = {
    SILVER_REVIEW_EVENTS.name: review_event.Event,
    SILVER_APPROVAL_EVENTS.name: approval_event.Event,
}
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each part of a ZIP file, so that the same events give the same bytes."""
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,  # a part is encrypted, or compressed in an unknown way
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Errors that zipfile raises for a file that is not an archive, or a damaged one."""


@dataclass(frozen=True)
class Part:
    """The events of a table in an audit file."""

    table: str
    events: int
    first: int
    """Number of the first event; 0 without events."""
    last: int
    before: str | None
    """Hash of the event before the first."""
    head: str | None
    """Hash of the last event."""
    sha256: str
    """Hash of the lines."""


def verify(
    store: Store, known: tuple[int, str] | None = None, known_approval: tuple[int, str] | None = None
) -> dict[str, Verified]:
    """Check the chains of both tables of events, by name.

    Args:
        store: the lake's tables.
        known: number and hash of a review event, as noted earlier.
        known_approval: number and hash of an event of the approvals, as noted earlier.
    """
    return _verify(store, event_log.read_events(store), log.read_events(store), known, known_approval)


def _verify(
    store: Store,
    review: Sequence[review_event.Event],
    approvals: Sequence[approval_event.Event],
    known: tuple[int, str] | None = None,
    known_approval: tuple[int, str] | None = None,
) -> dict[str, Verified]:
    may_be_erased = store.has_rows(GOLD_FORGOTTEN)
    return {
        SILVER_REVIEW_EVENTS.name: chain.verify(review, known, may_be_erased),
        SILVER_APPROVAL_EVENTS.name: log.verify(approvals, known_approval, may_be_erased),
    }


def export(store: Store, year: int, key: Path) -> tuple[bytes, list[Part]]:
    """Return the audit file of a year (UTC), and what it has of each table.

    It has all events from the first of the year to the last, in the order of their numbers: an event in between that a
    wrong clock dated otherwise is included.

    Args:
        store: the lake's tables.
        year: the year.
        key: a PEM file with the private Ed25519 key.

    Raises:
        UsageError: the key cannot be read.
        FraudlakeError: a chain is broken.
    """
    signing = _private(key)
    review = event_log.read_events(store)
    approvals = log.read_events(store)
    for table, verified in _verify(store, review, approvals).items():
        if verified.faults:
            raise FraudlakeError(f"{table}: {verified.faults[0]}: nothing was exported")
    events: dict[str, Sequence[Any]] = {SILVER_REVIEW_EVENTS.name: review, SILVER_APPROVAL_EVENTS.name: approvals}
    files: dict[str, bytes] = {}
    parts = []
    for table, all_ in events.items():
        chosen, before = _select_year(all_, year)
        lines = "".join(f"{chain.as_json(event)}\n" for event in chosen).encode()
        first, last = (chosen[0].number, chosen[-1].number) if chosen else (0, 0)
        head = chosen[-1].hash if chosen else None
        parts.append(Part(table, len(chosen), first, last, before, head, hashlib.sha256(lines).hexdigest()))
        files[_name(table)] = lines
    content = {"lake": store.short_name, "year": year, "parts": [asdict(part) for part in parts]}
    manifest = json.dumps(content, indent=1, sort_keys=True).encode()
    return _zipped({**files, _MANIFEST: manifest, _SIGNATURE: signing.sign(manifest)}), parts


def _select_year(events: Sequence[Any], year: int) -> tuple[Sequence[Any], str | None]:
    """Return the events from the first of a year to the last, and the hash of the event before them."""
    places = [place for place, event in enumerate(events) if event.at.astimezone(UTC).year == year]
    if not places:
        return [], None
    first = places[0]
    return events[first : places[-1] + 1], events[first - 1].hash if first else None


def _name(table: str) -> str:
    return f"{table}.jsonl"


def _zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def verify_export(file: Path, key: Path) -> tuple[dict[str, Any], list[Part]]:
    """Check an audit file with the public key of its signer; return its manifest, and what it has of each table.

    Raises:
        UsageError: the file or the key cannot be read.
        FraudlakeError: the file was changed, or is signed with another key.
    """
    public = _public(key)
    try:
        with zipfile.ZipFile(file) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
    except _UNREADABLE as error:
        raise UsageError(f"{file}: {file_reason(error)}: give a file of 'fraudlake audit export'") from None
    if content.keys() != {_MANIFEST, _SIGNATURE, *map(_name, _EVENTS)}:
        raise FraudlakeError(f"{file}: it does not have the parts of an audit file, and no others: it was changed")
    try:
        public.verify(content[_SIGNATURE], content[_MANIFEST])
    except InvalidSignature:
        raise FraudlakeError(f"{file}: it was changed, or signed with another key than that of {key}") from None
    manifest = json.loads(content[_MANIFEST])
    parts = [Part(**part) for part in manifest["parts"]]
    for part in parts:
        fault = _fault(part, content[_name(part.table)])
        if fault:
            raise FraudlakeError(f"{file}: {part.table}: {fault}")
    return manifest, parts


def _fault(part: Part, lines: bytes) -> str | None:
    """Return what is wrong with the events of a table; None if they are as they were signed."""
    if hashlib.sha256(lines).hexdigest() != part.sha256:
        return "its events were changed"
    events = [chain.from_json(_EVENTS[part.table], line) for line in json_text.lines(lines.decode())]
    after = (part.first - 1, part.before) if events else (0, None)
    verified = chain.verify(events, after=after)
    return next(iter(verified.faults), None)


def _private(file: Path) -> Ed25519PrivateKey:
    key = _loaded(file, lambda content: serialization.load_pem_private_key(content, None))
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{file}: it is not a private Ed25519 key: 'openssl genpkey -algorithm ed25519' makes one")
    return key


def _public(file: Path) -> Ed25519PublicKey:
    key = _loaded(file, serialization.load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{file}: it is not a public Ed25519 key: 'openssl pkey -pubout' makes one of the private key")
    return key


def _loaded(file: Path, load: Callable[[bytes], Any]) -> Any:
    try:
        return load(file.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{file}: {file_reason(error)}: give an Ed25519 key in a PEM file") from None
