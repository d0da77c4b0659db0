"""The ledger of files: ``bronze_files`` has the outcome of every landed file; the latest entry of a file counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from fraudlake import tables
from fraudlake.lake import conflict
from fraudlake.sources import landing
from fraudlake.sources.file import File
from fraudlake.sources.folder import LandingFolder
from fraudlake.sources.landing_folder import landing_folder

if TYPE_CHECKING:
    from fraudlake.lake import Lake

ACCEPTED: Literal["accepted"] = "accepted"
REJECTED: Literal["rejected"] = "rejected"
REWRITTEN: Literal["rewritten"] = "rewritten"


@dataclass(frozen=True)
class Entry:
    """The outcome of a file: a row of the ledger ``bronze_files``. Of a file's entries only the one with the
    largest number counts.

    ``accepted``: its ``rows`` are in bronze. ``rejected``: it has no rows in bronze, for the reason ``error``.
    ``rewritten``: it was accepted and has changed since; the new version is not read.
    """

    file: File
    status: str
    rows: int = 0
    error: str | None = None
    noted_at: int = 0
    """Microseconds since 1970 UTC; 0 until the entry is written."""
    number: int = 0
    """The order of entries, independent of any clock."""
    digest: str | None = None
    """SHA-256 of the file's bytes; None if it has no rows in bronze."""


def latest(lake: Lake) -> dict[str, Entry]:
    """Read the latest entry of each file, by its path relative to the landing folder.

    A file of the lake's own landing folder has its path there, wherever the lake was when the entry was written.
    """
    entries = lake.store.rows(tables.BRONZE_FILES)
    entries = entries.sort_by([("number", "ascending"), ("noted_at", "ascending")])
    for name in ("modified_at", "noted_at"):
        entries = entries.set_column(entries.schema.get_field_index(name), name, entries[name].cast(pa.int64()))
    return {entry.file.source: entry for entry in _entries(entries, landing_folder(lake))}


def last_accepted(lake: Lake) -> int:
    """Return the largest number of an accepted file's entry; 0 if there is no such entry."""
    (row,) = lake.store.query(
        f"SELECT max(number) AS number FROM {tables.BRONZE_FILES.name} WHERE status = '{ACCEPTED}'", tables.BRONZE_FILES
    ).to_pylist()
    return int(row["number"] or 0)


def append(lake: Lake, entries: list[Entry]) -> dict[str, Entry]:
    """Append entries; return them with their time, by their file's path relative to the landing folder."""
    timed = _with_time(entries)
    rows = _as_arrow(timed)
    conflict.retried(lambda: lake.writer(tables.BRONZE_FILES).write(rows, "append"))
    return {entry.file.source: entry for entry in timed}


def list_rejected(lake: Lake, entries: list[Entry]) -> None:
    """Make ``bronze_rejected_files`` the list of files that are not accepted, if it differs."""
    rejected = [entry for entry in entries if entry.status != ACCEPTED]
    listed = lake.store.rows(tables.BRONZE_REJECTED_FILES).select(["path", "error"]).to_pylist()
    if {(row["path"], row["error"]) for row in listed} != {
        (landing.text(entry.file.path), entry.error) for entry in rejected
    }:
        rows = _as_arrow(_with_time(rejected))
        rows = rows.append_column("rejected_at", rows["noted_at"]).select(tables.BRONZE_REJECTED_FILES.column_names)
        conflict.retried(lambda: lake.writer(tables.BRONZE_REJECTED_FILES).write(rows, "overwrite"))


def _with_time(entries: list[Entry]) -> list[Entry]:
    now = time.time_ns() // 1000
    return [entry if entry.noted_at else replace(entry, noted_at=now) for entry in entries]


def _as_arrow(entries: list[Entry]) -> pa.Table:
    rows = [
        (
            landing.text(entry.file.path),
            entry.file.source,
            entry.file.size,
            entry.file.modified,
            entry.rows,
            entry.status,
            entry.error,
            entry.noted_at,
            entry.number,
            entry.file.inode,
            entry.digest,
        )
        for entry in entries
    ]
    schema = tables.BRONZE_FILES.schema
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def _entries(rows: pa.Table, folder: LandingFolder) -> Iterator[Entry]:
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            source = row["_source_file"]
            file = File(folder.place_of(row["path"], source), source, row["size"], row["modified_at"], row["inode"])
            yield Entry(file, row["status"], row["rows"], row["error"], row["noted_at"], row["number"], row["digest"])
