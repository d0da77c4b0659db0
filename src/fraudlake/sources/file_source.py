"""File source: landed files go into bronze once each, and a ledger tells of every file what became of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.bronze import landing
from fraudlake.bronze.landing import File
from fraudlake.errors import FraudlakeError
from fraudlake.streaming import conflict
from fraudlake.streaming.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

ACCEPTED: Literal["accepted"] = "accepted"
REJECTED: Literal["rejected"] = "rejected"
REWRITTEN: Literal["rewritten"] = "rewritten"
_ATTEMPTS = 3

_ENTRY = pa.schema(
    [
        ("path", pa.string()),
        ("_source_file", pa.string()),
        ("size", pa.int64()),
        ("modified_at", pa.timestamp("us", tz="UTC")),
        ("rows", pa.int64()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("noted_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class Entry:
    """What became of a file: a row of ``bronze_files``. Of several of one file the latest holds.

    ``accepted``: its ``rows`` are in bronze. ``rejected``: none is, for the reason ``error``. ``rewritten``: it was
    accepted and is another file now, which has not been read.
    """

    file: File
    status: str
    rows: int = 0
    error: str | None = None
    noted: int = 0
    """Microseconds since 1970 UTC."""


@dataclass(frozen=True)
class Landed:
    """What has landed: files and rows, counted once each, whether read or still to be read."""

    files: int
    rows: int
    rejected_files: int
    waiting_files: int
    waiting_rows: int


def stream(lake: Lake, retry_rejected: bool = False) -> Stream:
    """Return the stream that takes landed files into ``bronze_transactions``.

    Args:
        lake: the lake.
        retry_rejected: first read rejected files again that have been mended.

    Raises:
        FraudlakeError: nothing has landed, now or ever.
    """
    lake.require_landing()
    if not lake.rows(tables.BRONZE_FILES) and not any(True for _ in landing.files(lake.landing)):
        raise FraudlakeError(f"nothing has landed in {lake.landing}: no finished file is there yet")
    source = _Source(retry_rejected)
    return Stream(
        "ingest",
        lake.landed(),
        source.take,
        once=True,
        before=lambda: source.prepare(lake),
        after=lambda: source.finish(lake),
    )


def landed(lake: Lake) -> Landed:
    """Count what has landed from the ledger and, for files that it does not know, from their footers."""
    entries = _latest(lake)
    waiting = [file for file in lake.list_files() if file.source not in entries and file.size is not None]
    waiting_rows = sum(rows for rows, _ in lake.count_rows(waiting))
    taken = sum(entry.rows for entry in entries.values())
    rejected = sum(entry.status != ACCEPTED for entry in entries.values())
    return Landed(len(entries) + len(waiting), taken + waiting_rows, rejected, len(waiting), waiting_rows)


class _Source:
    """Takes files into bronze exactly once, however often a process dies in between.

    A file's rows and its entry in the ledger are two commits, rows first. Whoever starts next enters what bronze holds
    and the ledger lacks (:meth:`_catch_up`); a file with an entry is not read again. So neither a repeated
    micro-batch nor a retry, nor a checkpoint that was lost, takes a file twice.
    """

    def __init__(self, retry_rejected: bool = False) -> None:
        self.retry_rejected = retry_rejected
        self.entries: dict[str, Entry] = {}
        self.swept = 0.0

    def prepare(self, lake: Lake) -> None:
        """Know what has been taken, look for files that changed behind the stream's back, retry where asked to."""
        self.entries = _latest(lake)
        self._catch_up(lake)
        if not lake.sweeps_at_start:
            self.swept = _last_sweep(lake)
        self._sweep_if_due(lake)
        if self.retry_rejected:
            self._retry(lake)
        self._list_rejected(lake)

    def take(self, lake: Lake, batch: DataFrame, batch_id: int) -> None:
        """Take a micro-batch of files."""
        files = lake.landed_files(batch)
        self._take(lake, [file for file in files if landing.is_finished(file.source) and not self._is_known(file)])
        self._sweep_if_due(lake)

    def finish(self, lake: Lake) -> None:
        """Take what the stream listed and did not hand over."""
        # The micro-batches may have run in another process.
        self.entries = _latest(lake)
        self._take_passed_over(lake)

    def _sweep_if_due(self, lake: Lake) -> None:
        if time.time() > self.swept + lake.sweep_seconds:
            self.sweep(lake)

    def sweep(self, lake: Lake) -> None:
        """Enter what the stream does not tell: files rewritten or lost, and folders named like files.

        Spark lists a path once, ever; so a file that another one took the place of must be looked for.
        """
        entries = []
        for file in lake.list_files():
            known = self.entries.get(file.source)
            if file.size is None and known is None:
                entries.append(Entry(file, REJECTED, error="it is an empty folder, not a file"))
            elif known is not None and known.status != REJECTED and known.file.size and not _same(known.file, file):
                entries.append(Entry(file, REWRITTEN, known.rows, _rewritten(known.file, file)))
        self._enter(lake, entries)
        self._take_passed_over(lake)
        self.swept = time.time()
        _sweep_mark(lake).touch()

    def _take_passed_over(self, lake: Lake) -> None:
        self._take(lake, [file for file in self._passed_over(lake) if not self._is_known(file)])

    def _passed_over(self, lake: Lake) -> Iterator[File]:
        """Return what Spark has listed and not handed over: files gone before they were read, and empty ones.

        Its file sources leave out files of zero bytes without a word (seen in Spark 4.2).
        """
        below = lake.landing.rstrip("/") + "/"
        for path in lake.files_listed_by("ingest"):
            source = landing.relative(path, lake.landing)
            if path.startswith(below) and source not in self.entries and landing.is_finished(source):
                yield landing.seen(path, lake.landing) or landing.gone(path, lake.landing)

    def _is_known(self, file: File) -> bool:
        entry = self.entries.get(file.source)
        return entry is not None and (entry.status != REJECTED or _same(entry.file, file))

    def _take(self, lake: Lake, files: list[File]) -> None:
        """Read files into bronze, each wholly or not at all, and enter what became of them.

        At first a glance at their footers must do. Where reading them together fails, each is read to its end before
        the next attempt, and what is damaged is left out.
        """
        outcomes = _outcomes(lake, files)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                some = [entry.file for entry in outcomes if entry.status == ACCEPTED and entry.rows]
                if some:
                    conflict.retried(partial(lake.append_files, some))
                break
            except Exception:
                # A file may also change or vanish between the two looks at it; where nothing did, the cause is another.
                # Inside a micro-batch Spark's error comes as py4j's, outside as pyspark's (seen in PySpark 4.2).
                self._catch_up(lake)
                unknown = [file for file in lake.look_again(files) if not self._is_known(file)]
                outcomes_now = _outcomes(lake, unknown, whole=True)
                if attempt == _ATTEMPTS or outcomes_now == outcomes:
                    raise
                outcomes = outcomes_now
        self._enter(lake, outcomes)

    def _enter(self, lake: Lake, entries: list[Entry]) -> None:
        """Write entries to the ledger, and the list of rejected files where they change it."""
        if not entries:
            return
        changes_rejected = any(entry.status != ACCEPTED or entry.file.source in self.entries for entry in entries)
        self._write(lake, entries, tables.BRONZE_FILES, "append")
        self.entries |= {entry.file.source: entry for entry in _stamped(entries)}
        if changes_rejected:
            self._list_rejected(lake)

    def _write(
        self, lake: Lake, entries: list[Entry], table: tables.Table, mode: Literal["append", "overwrite"]
    ) -> None:
        rows = _as_arrow(_stamped(entries))
        rows = rows.append_column("rejected_at", rows["noted_at"]).select(table.column_names)
        conflict.retried(lambda: lake.write(rows, table, mode))

    def _list_rejected(self, lake: Lake) -> None:
        """Bring ``bronze_rejected_files`` to what the ledger says; the next run does where a crash came between."""
        rejected = [entry for entry in self.entries.values() if entry.status != ACCEPTED]
        listed = lake.rows(tables.BRONZE_REJECTED_FILES).select(["path", "error"]).to_pylist()
        if {(row["path"], row["error"]) for row in listed} != {(one.file.path, one.error) for one in rejected}:
            self._write(lake, rejected, tables.BRONZE_REJECTED_FILES, "overwrite")

    def _catch_up(self, lake: Lake) -> None:
        """Enter files whose rows reached bronze when their entry did not reach the ledger."""
        rows = lake.read(tables.BRONZE_TRANSACTIONS).where("_source_file IS NOT NULL")
        if self.entries:
            # Their rows are younger than the last entry; an hour for a clock that was set back.
            last = max(entry.noted for entry in self.entries.values()) - 3600 * 1_000_000
            rows = rows.where(F.col("_ingested_at") > F.timestamp_micros(F.lit(last)))
        counts = {}
        for row in rows.groupBy("_source_file").count().collect():
            known = self.entries.get(row["_source_file"])
            if known is None or known.status == REJECTED:
                path = f"{lake.landing}/{row['_source_file']}"
                counts[landing.gone(path, lake.landing)] = row["count"]
        files = lake.look_again(list(counts))
        self._enter(lake, [Entry(file, ACCEPTED, rows) for file, rows in zip(files, counts.values(), strict=True)])

    def _retry(self, lake: Lake) -> None:
        """Read rejected files again that are other than when they were rejected, or readable now."""
        rejected = [entry.file for entry in self.entries.values() if entry.status == REJECTED]
        there = [file for file in lake.look_again(rejected) if file.size is not None]
        readable = [
            file for file, (_, error) in zip(there, lake.count_rows(there, whole=True), strict=True) if error is None
        ]
        size = lake.settings.max_files_per_trigger
        for begin in range(0, len(readable), size):
            self._take(lake, readable[begin : begin + size])


def _last_sweep(lake: Lake) -> float:
    """Return when any process swept last, in seconds since 1970; 0 where none did."""
    mark = _sweep_mark(lake)
    return mark.stat().st_mtime if mark.exists() else 0.0


def _sweep_mark(lake: Lake) -> Path:
    return lake.checkpoint("ingest").folder / "swept"


def _outcomes(lake: Lake, files: list[File], whole: bool = False) -> list[Entry]:
    """Count each file's rows; one that cannot be read is rejected for the reason."""
    return [
        Entry(file, REJECTED if error else ACCEPTED, rows, error)
        for file, (rows, error) in zip(files, lake.count_rows(files, whole), strict=True)
    ]


def _same(one: File, other: File) -> bool:
    return (one.size, one.modified) == (other.size, other.modified)


def _rewritten(was: File, now: File) -> str:
    return (
        f"it was rewritten after it was ingested: {_told(was)} then, {_told(now)} now; "
        "the rows of then stay, those of now are not read: land them under another name"
    )


def _told(file: File) -> str:
    if file.size is None or file.modified is None:
        return "no file"
    return f"{file.size:,} bytes of {datetime.fromtimestamp(file.modified / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _stamped(entries: list[Entry]) -> list[Entry]:
    now = time.time_ns() // 1000
    return [
        entry if entry.noted else Entry(entry.file, entry.status, entry.rows, entry.error, now) for entry in entries
    ]


def _as_arrow(entries: list[Entry]) -> pa.Table:
    rows = [
        (
            entry.file.path,
            entry.file.source,
            entry.file.size,
            entry.file.modified,
            entry.rows,
            entry.status,
            entry.error,
            entry.noted,
        )
        for entry in entries
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(_ENTRY)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _ENTRY, strict=True)], _ENTRY)


def _latest(lake: Lake) -> dict[str, Entry]:
    """Read the ledger: of each file what holds now, by its path relative to the landing folder."""
    ledger = lake.rows(tables.BRONZE_FILES).sort_by("noted_at")
    for name in ("modified_at", "noted_at"):
        ledger = ledger.set_column(ledger.schema.get_field_index(name), name, ledger[name].cast(pa.int64()))
    return {entry.file.source: entry for entry in _entries(ledger)}


def _entries(ledger: pa.Table) -> Iterator[Entry]:
    for batch in ledger.to_batches():
        for row in batch.to_pylist():
            file = File(row["path"], row["_source_file"], row["size"], row["modified_at"])
            yield Entry(file, row["status"], row["rows"], row["error"], row["noted_at"])
