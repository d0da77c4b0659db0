"""File source: landed files go into bronze once each, and a ledger tells of every file what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake import conflict, tables
from fraudlake.bronze import autoloader, landing, parquet
from fraudlake.bronze.landing import File
from fraudlake.errors import FraudlakeError
from fraudlake.stream import Appender, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

ACCEPTED: Literal["accepted"] = "accepted"
REJECTED: Literal["rejected"] = "rejected"
REWRITTEN: Literal["rewritten"] = "rewritten"
_SWEEP_SECONDS, _DAY_SECONDS = 60.0, 86_400.0
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
    landed = lake.landed()
    source = _Source(lake, retry_rejected, by_rows="_source_file" in landed.columns)
    if not lake.has_landed() and not lake.rows(tables.BRONZE_FILES):
        raise FraudlakeError(f"nothing has landed in {lake.landing}: no finished file is there yet")
    return Stream(
        "ingest",
        landed,
        source.take,
        once=not source.by_rows,
        before=source.prepare,
        after=source.finish,
        explain=autoloader.new_column,
    )


def landed(lake: Lake) -> Landed:
    """Count what has landed from the ledger and, for files that it does not know, from their footers."""
    entries = _latest(lake)
    waiting = [
        file.path for file in landing.files(lake.landing) if file.source not in entries and file.size is not None
    ]
    with ThreadPoolExecutor() as pool:
        waiting_rows = sum(rows for rows, _ in pool.map(parquet.glance, waiting))
    taken = sum(entry.rows for entry in entries.values())
    rejected = sum(entry.status != ACCEPTED for entry in entries.values())
    return Landed(len(entries) + len(waiting), taken + waiting_rows, rejected, len(waiting), waiting_rows)


class _Source:
    """Takes files into bronze exactly once, however often a process dies in between.

    A file's rows and its entry in the ledger are two commits, rows first. Whoever starts next enters what bronze holds
    and the ledger lacks (:meth:`_catch_up`); a file with an entry is not read again. So neither a repeated
    micro-batch nor a retry, nor a checkpoint that was lost, takes a file twice.
    """

    def __init__(self, lake: Lake, retry_rejected: bool = False, by_rows: bool = False) -> None:
        self.lake, self.retry_rejected, self.by_rows = lake, retry_rejected, by_rows
        self.entries: dict[str, Entry] = {}
        self.swept = 0.0

    def prepare(self) -> None:
        """Know what has been taken, look for files that changed behind the stream's back, retry where asked to."""
        self.entries = _latest(self.lake)
        self._catch_up()
        if not self.by_rows:
            self.sweep()
        if self.retry_rejected:
            self._retry()
        self._list_rejected()

    def take(self, batch: DataFrame, batch_id: int) -> None:
        """Take a micro-batch, of files or of their rows."""
        if self.by_rows:
            self._take_rows(batch, batch_id)
            return
        paths = [landing.local_path(row["path"]) for row in batch.select("path").collect()]
        files = [landing.seen(path, self.lake.landing) or self._gone(path) for path in paths]
        self._take([file for file in files if landing.is_finished(file.source) and not self._is_known(file)])
        if time.monotonic() > self.swept + _SWEEP_SECONDS:
            self.sweep()

    def _take_rows(self, batch: DataFrame, batch_id: int) -> None:
        """Take the rows of a micro-batch, which Auto Loader has read already: of each file all, or none.

        A damaged file gives fewer rows than its footer tells. Such a file, and what a micro-batch that is repeated has
        not taken yet, is read file by file: of one (checkpoint, micro-batch) Delta takes one append only.
        """
        counts = {row["_source_file"]: row["count"] for row in batch.groupBy("_source_file").count().collect()}
        paths = [f"{self.lake.landing}/{source}" for source in counts if landing.is_finished(source)]
        files = [landing.seen(path, self.lake.landing) or self._gone(path) for path in paths]
        new = [file for file in files if not self._is_known(file)]
        is_first = len(new) == len(files)
        told = _outcomes(new, parquet.glance)
        whole = [entry.file for entry in told if is_first and entry.rows == counts[entry.file.source]]
        table = tables.BRONZE_TRANSACTIONS
        added = [name for name in batch.columns if name not in table.column_names]
        all_or_some = (
            F.lit(True) if len(whole) == len(counts) else F.col("_source_file").isin([f.source for f in whole])
        )
        if whole:
            Appender.of(self.lake, "ingest").append(batch.where(all_or_some), table, batch_id, added)
        self._enter([Entry(file, ACCEPTED, counts[file.source]) for file in whole])
        self._take([file for file in new if file not in whole])

    def finish(self) -> None:
        """Look once more behind the stream's back.

        Auto Loader is there to spare a listing of all that ever landed: with it that is done once a day. It lists ahead
        of what it reads: only after a run over all that is there, a file without an entry was passed over.
        """
        if not self.by_rows:
            self.sweep()
        elif self.lake.settings.trigger == "available-now":
            # Over Spark Connect the micro-batches ran in another process.
            self.entries = _latest(self.lake)
            mark = self.lake.checkpoint("ingest").folder / "swept"
            if not mark.exists() or time.time() > mark.stat().st_mtime + _DAY_SECONDS:
                self.sweep()
                mark.touch()
            else:
                self._take_passed_over()

    def sweep(self) -> None:
        """Enter what the stream does not tell: files rewritten or lost, and folders named like files.

        Spark lists a path once, ever; so a file that another one took the place of must be looked for.
        """
        found = []
        for file in landing.files(self.lake.landing):
            known = self.entries.get(file.source)
            if file.size is None and known is None:
                found.append(Entry(file, REJECTED, error="it is an empty folder, not a file"))
            elif known is not None and known.status != REJECTED and known.file.size and not _same(known.file, file):
                found.append(Entry(file, REWRITTEN, known.rows, _rewritten(known.file, file)))
        self._enter(found)
        self._take_passed_over()
        self.swept = time.monotonic()

    def _take_passed_over(self) -> None:
        self._take([file for file in self._passed_over() if not self._is_known(file)])

    def _passed_over(self) -> Iterator[File]:
        """Return what Spark has listed and not handed over: files gone before they were read, and empty ones.

        Its file sources leave out files of zero bytes without a word (seen in Spark 4.2).
        """
        below = self.lake.landing.rstrip("/") + "/"
        for path in self.lake.files_listed_by("ingest"):
            source = landing.relative(path, self.lake.landing)
            if path.startswith(below) and source not in self.entries and landing.is_finished(source):
                yield landing.seen(path, self.lake.landing) or self._gone(path)

    def _is_known(self, file: File) -> bool:
        entry = self.entries.get(file.source)
        return entry is not None and (entry.status != REJECTED or _same(entry.file, file))

    def _gone(self, path: str) -> File:
        return File(path, landing.relative(path, self.lake.landing), None, None)

    def _take(self, files: list[File]) -> None:
        """Read files into bronze, each wholly or not at all, and enter what became of them.

        At first a glance at their footers must do. Where reading them together fails, each is read to its end before
        the next attempt, and what is damaged is left out.
        """
        outcomes = _outcomes(files, parquet.glance)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                some = [entry.file for entry in outcomes if entry.status == ACCEPTED and entry.rows]
                if some:
                    conflict.retried(partial(self.lake.append_files, some))
                break
            except Exception:
                # A file may also change or vanish between the two looks at it; where nothing did, the cause is another.
                # Inside a micro-batch Spark's error comes as py4j's, outside as pyspark's (seen in PySpark 4.2).
                self._catch_up()
                again = [landing.seen(file.path, self.lake.landing) or self._gone(file.path) for file in files]
                found = _outcomes([file for file in again if not self._is_known(file)], parquet.inspect)
                if attempt == _ATTEMPTS or found == outcomes:
                    raise
                outcomes = found
        self._enter(outcomes)

    def _enter(self, found: list[Entry]) -> None:
        """Write entries to the ledger, and the list of rejected files anew where they change it."""
        if not found:
            return
        changes_rejected = any(entry.status != ACCEPTED or entry.file.source in self.entries for entry in found)
        self._write(found, tables.BRONZE_FILES, "append")
        self.entries |= {entry.file.source: entry for entry in _stamped(found)}
        if changes_rejected:
            self._list_rejected()

    def _write(self, entries: list[Entry], table: tables.Table, mode: Literal["append", "overwrite"]) -> None:
        rows = _as_arrow(_stamped(entries))
        rows = rows.append_column("rejected_at", rows["noted_at"]).select(table.column_names)
        conflict.retried(lambda: self.lake.write(rows, table, mode))

    def _list_rejected(self) -> None:
        """Bring ``bronze_rejected_files`` to what the ledger says; the next run does where a crash came between."""
        rejected = [entry for entry in self.entries.values() if entry.status != ACCEPTED]
        listed = self.lake.rows(tables.BRONZE_REJECTED_FILES).select(["path", "error"]).to_pylist()
        if {(row["path"], row["error"]) for row in listed} != {(one.file.path, one.error) for one in rejected}:
            self._write(rejected, tables.BRONZE_REJECTED_FILES, "overwrite")

    def _catch_up(self) -> None:
        """Enter files whose rows reached bronze when their entry did not reach the ledger."""
        rows = self.lake.read(tables.BRONZE_TRANSACTIONS).where("_source_file IS NOT NULL")
        if self.entries:
            # Their rows are younger than the last entry; an hour for a clock that was set back.
            last = max(entry.noted for entry in self.entries.values()) - 3600 * 1_000_000
            rows = rows.where(F.col("_ingested_at") > F.timestamp_micros(F.lit(last)))
        missing = []
        for row in rows.groupBy("_source_file").count().collect():
            source, known = row["_source_file"], self.entries.get(row["_source_file"])
            if known is None or known.status == REJECTED:
                path = f"{self.lake.landing}/{source}"
                file = landing.seen(path, self.lake.landing) or self._gone(path)
                missing.append(Entry(file, ACCEPTED, row["count"]))
        self._enter(missing)

    def _retry(self) -> None:
        """Read rejected files again that are other than when they were rejected, or readable now."""
        rejected = [entry for entry in self.entries.values() if entry.status == REJECTED]
        there = [landing.seen(entry.file.path, self.lake.landing) for entry in rejected]
        again = [file for file in there if file is not None and parquet.inspect(file.path)[1] is None]
        size = self.lake.settings.max_files_per_trigger
        for begin in range(0, len(again), size):
            self._take(again[begin : begin + size])


def _outcomes(files: list[File], look: Callable[[str], tuple[int, str | None]]) -> list[Entry]:
    """Look at each file; what cannot be read is rejected for the reason that ``look`` gives."""

    def outcome(file: File) -> Entry:
        rows, error = look(file.path)
        return Entry(file, REJECTED if error else ACCEPTED, rows, error)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(outcome, files))


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
