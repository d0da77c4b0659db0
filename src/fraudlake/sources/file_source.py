"""File source: landed files go into bronze once each; a ledger has the outcome of every file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.sources import landing, ledger
from fraudlake.sources.landing import File
from fraudlake.sources.landing_folder import LandingFolder, landing_folder
from fraudlake.sources.ledger import ACCEPTED, REJECTED, REWRITTEN, Entry
from fraudlake.streaming import conflict
from fraudlake.streaming.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

_ATTEMPTS = 3


@dataclass(frozen=True)
class Landed:
    """What has landed: ``files`` and ``rows``, read or not; ``waiting`` are those that are not read yet."""

    files: int
    rows: int
    rejected_files: int
    waiting_files: int
    waiting_rows: int


def stream(lake: Lake, retry_rejected: bool = False) -> Stream:
    """Return the stream that ingests landed files into ``bronze_transactions``.

    Args:
        lake: the lake.
        retry_rejected: first read rejected files again that can be read now.

    Raises:
        FraudlakeError: nothing has landed, now or ever.
    """
    folder = landing_folder(lake)
    folder.require()
    if not lake.rows(tables.BRONZE_FILES) and not any(True for _ in landing.files(folder.path)):
        raise FraudlakeError(f"nothing has landed in {folder.path}: no finished file is there yet")
    source = FileSource(retry_rejected)
    return Stream(
        "ingest",
        folder.read_stream(),
        source.ingest_batch,
        persist=False,
        before=lambda: source.prepare(lake),
        after=lambda: source.finish(lake),
    )


def landed(lake: Lake) -> Landed:
    """Count what has landed: by the ledger and, for files without an entry, by their footers."""
    entries, folder = ledger.latest(lake), landing_folder(lake)
    waiting = [file for file in folder.list_files() if file.source not in entries and file.size is not None]
    waiting_rows = sum(rows for rows, _ in folder.count_rows(waiting))
    ingested_rows = sum(entry.rows for entry in entries.values())
    rejected = sum(entry.status != ACCEPTED for entry in entries.values())
    return Landed(len(entries) + len(waiting), ingested_rows + waiting_rows, rejected, len(waiting), waiting_rows)


class FileSource:
    """Ingests files into bronze exactly once, however often a process dies in between.

    A file's rows and its entry in the ledger are two commits, rows first. The next process to start adds the entries
    that are missing for rows in bronze (:meth:`_catch_up`). A file with an entry is not read again. So a repeated
    micro-batch, a retry or a lost checkpoint never ingests a file twice.
    """

    def __init__(self, retry_rejected: bool = False) -> None:
        """Begin with an empty ledger; :meth:`prepare` reads it."""
        self.retry_rejected = retry_rejected
        self.entries: dict[str, Entry] = {}
        self.last_sweep = 0.0

    def prepare(self, lake: Lake) -> None:
        """Load the ledger, look for changes that the stream did not notice, and retry rejected files on demand."""
        self.entries = ledger.latest(lake)
        self._catch_up(lake)
        if not landing_folder(lake).sweeps_at_start:
            self.last_sweep = _last_sweep(lake)
        self._sweep_if_due(lake)
        if self.retry_rejected:
            self._retry(lake)
        self._list_rejected(lake)

    def ingest_batch(self, lake: Lake, batch: DataFrame, batch_id: int) -> None:
        """Ingest a micro-batch of files."""
        files = landing_folder(lake).files_of(batch)
        self._ingest(lake, [file for file in files if landing.is_finished(file.source) and not self._is_known(file)])
        self._sweep_if_due(lake)

    def finish(self, lake: Lake) -> None:
        """Ingest the files that the stream skipped."""
        # The micro-batches may have run in another process.
        self.entries = ledger.latest(lake)
        self._ingest_skipped_files(lake)

    def _sweep_if_due(self, lake: Lake) -> None:
        if time.time() > self.last_sweep + landing_folder(lake).sweep_seconds:
            self.sweep(lake)

    def sweep(self, lake: Lake) -> None:
        """Add entries for what the stream never reports: rewritten and lost files, and folders named like files.

        Spark reports a path only once, so a rewritten file is noticed only in a full listing.
        """
        entries = []
        for file in landing_folder(lake).list_files():
            known = self.entries.get(file.source)
            if file.size is None and known is None:
                entries.append(Entry(file, REJECTED, error="it is an empty folder, not a file"))
            elif (
                known is not None
                and known.status != REJECTED
                and known.file.size
                and not _is_same_version(known.file, file)
            ):
                entries.append(Entry(file, REWRITTEN, known.rows, _rewritten(known.file, file)))
        self._add_entries(lake, entries)
        self._ingest_skipped_files(lake)
        self.last_sweep = time.time()
        _sweep_file(lake).touch()

    def _ingest_skipped_files(self, lake: Lake) -> None:
        self._ingest(lake, [file for file in self._skipped_files(lake) if not self._is_known(file)])

    def _skipped_files(self, lake: Lake) -> Iterator[File]:
        """Return the files that Spark listed but put into no micro-batch: deleted before they were read, or empty.

        Spark's file sources skip files of zero bytes silently (seen in Spark 4.2).
        """
        folder = landing_folder(lake)
        prefix = folder.path.rstrip("/") + "/"
        for path in folder.files_listed_by("ingest"):
            source = landing.relative(path, folder.path)
            if path.startswith(prefix) and source not in self.entries and landing.is_finished(source):
                yield landing.current_file(path, folder.path) or folder.missing(path)

    def _is_known(self, file: File) -> bool:
        entry = self.entries.get(file.source)
        return entry is not None and (entry.status != REJECTED or _is_same_version(entry.file, file))

    def _ingest(self, lake: Lake, files: list[File]) -> None:
        """Append files to bronze, each completely or not at all, and add their entries to the ledger.

        The first attempt checks only the files' footers. Where appending them together fails, each file is read to its
        end before the next attempt, and damaged ones are rejected.
        """
        folder = landing_folder(lake)
        outcomes = _outcomes(folder, files)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                accepted = [entry.file for entry in outcomes if entry.status == ACCEPTED and entry.rows]
                if accepted:
                    conflict.retried(partial(folder.append_to_bronze, accepted))
                break
            except Exception:
                # A file may have changed or vanished since it was checked; where none has, the error has another cause.
                # Every exception counts: Spark's errors are py4j's inside a micro-batch and pyspark's outside (seen in
                # PySpark 4.2).
                self._catch_up(lake)
                unknown = [file for file in folder.current(files) if not self._is_known(file)]
                new_outcomes = _outcomes(folder, unknown, whole=True)
                if attempt == _ATTEMPTS or new_outcomes == outcomes:
                    raise
                outcomes = new_outcomes
        self._add_entries(lake, outcomes)

    def _add_entries(self, lake: Lake, entries: list[Entry]) -> None:
        """Append entries to the ledger, and update the table of rejected files where they change it."""
        if not entries:
            return
        changes_rejected = any(entry.status != ACCEPTED or entry.file.source in self.entries for entry in entries)
        self.entries |= ledger.append(lake, entries)
        if changes_rejected:
            self._list_rejected(lake)

    def _list_rejected(self, lake: Lake) -> None:
        """Update the table of rejected files from the ledger; after a crash before this, the next run does it."""
        ledger.list_rejected(lake, list(self.entries.values()))

    def _catch_up(self, lake: Lake) -> None:
        """Add to the ledger the entries of files whose rows are in bronze: a crash may have left them out."""
        folder = landing_folder(lake)
        rows = lake.read(tables.BRONZE_TRANSACTIONS).where("_source_file IS NOT NULL")
        if self.entries:
            # Their rows are newer than the last entry, but for a clock that was set back: by an hour at most.
            last = max(entry.noted_at for entry in self.entries.values()) - 3600 * 1_000_000
            rows = rows.where(F.col("_ingested_at") > F.timestamp_micros(F.lit(last)))
        counts = {}
        for row in rows.groupBy("_source_file").count().collect():
            known = self.entries.get(row["_source_file"])
            if known is None or known.status == REJECTED:
                counts[folder.missing(f"{folder.path}/{row['_source_file']}")] = row["count"]
        files = folder.current(list(counts))
        self._add_entries(
            lake, [Entry(file, ACCEPTED, rows) for file, rows in zip(files, counts.values(), strict=True)]
        )

    def _retry(self, lake: Lake) -> None:
        """Ingest rejected files that can be read now."""
        folder = landing_folder(lake)
        rejected = [entry.file for entry in self.entries.values() if entry.status == REJECTED]
        existing = [file for file in folder.current(rejected) if file.size is not None]
        readable = [
            file
            for file, (_, error) in zip(existing, folder.count_rows(existing, whole=True), strict=True)
            if error is None
        ]
        size = lake.settings.max_files_per_trigger
        for begin in range(0, len(readable), size):
            self._ingest(lake, readable[begin : begin + size])


def _last_sweep(lake: Lake) -> float:
    """Return the time of the last sweep by any process, in seconds since 1970; 0 where there was none."""
    file = _sweep_file(lake)
    return file.stat().st_mtime if file.exists() else 0.0


def _sweep_file(lake: Lake) -> Path:
    return lake.checkpoint("ingest").folder / "swept"


def _outcomes(folder: LandingFolder, files: list[File], whole: bool = False) -> list[Entry]:
    """Count each file's rows; a file that cannot be read is rejected."""
    return [
        Entry(file, REJECTED if error else ACCEPTED, rows, error)
        for file, (rows, error) in zip(files, folder.count_rows(files, whole), strict=True)
    ]


def _is_same_version(first: File, second: File) -> bool:
    return (first.size, first.modified) == (second.size, second.modified)


def _rewritten(before: File, now: File) -> str:
    return (
        f"it was rewritten after it was ingested: {_description(before)} then, {_description(now)} now; "
        "the ingested rows stay, the new ones are not read: land them under another name"
    )


def _description(file: File) -> str:
    if file.size is None or file.modified is None:
        return "no file"
    return f"{file.size:,} bytes of {datetime.fromtimestamp(file.modified / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
