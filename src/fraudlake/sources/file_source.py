"""File source: ingests each landed file into bronze once; a ledger records the outcome of every file."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fraudlake import tables
from fraudlake.lake import conflict
from fraudlake.process import stop
from fraudlake.process.host import is_utf8
from fraudlake.sources import landing, ledger, numbered_append
from fraudlake.sources.file import File
from fraudlake.sources.folder import LandingFolder
from fraudlake.sources.landing_folder import landing_folder
from fraudlake.sources.ledger import ACCEPTED, REJECTED, REWRITTEN, Entry
from fraudlake.sources.numbered_append import NumberedAppend
from fraudlake.text.counts import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fraudlake.lake import Lake

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 3
_ANOTHER_NAME = "it is a link: another name of"
_RENAMED = "it was renamed: its rows are in bronze as those of"


@dataclass(frozen=True)
class Landed:
    """Numbers of landed files and rows, read or not; ``waiting`` ones are not read yet."""

    files: int
    rows: int
    rejected_files: int
    waiting_files: int
    waiting_rows: int


def landed(lake: Lake) -> Landed:
    """Count landed files and rows, by the ledger and, for files without an entry, by their footers."""
    entries = ledger.latest(lake)
    folder = landing_folder(lake)
    waiting = {
        file.source: file for file in folder.list_files() if file.size is not None and not _is_known(file, entries)
    }
    moved = _moved(folder, list(waiting.values()), entries, _digests_of_same_size(folder, waiting.values(), entries))
    unread = [file for source, file in waiting.items() if source not in moved]
    waiting_rows = sum(count.rows for count in folder.count_rows(unread))
    ingested_rows = sum(entry.rows for entry in entries.values())
    rejected = sum(entry.status != ACCEPTED for source, entry in entries.items() if source not in waiting)
    return Landed(len(entries | waiting), ingested_rows + waiting_rows, rejected, len(waiting), waiting_rows)


class FileSource:
    """Ingests files into bronze exactly once, however often a process dies in between.

    A file's rows and its entry in the ledger are two commits, rows first, with one number. The next process to start
    adds the entries that are missing for rows in bronze (:meth:`_catch_up`). A file with an entry is not read again. So
    a repeated micro-batch, a retry or a lost checkpoint never ingests a file twice, and neither do two processes at
    once: the second process finds its number used.
    """

    def __init__(self, retry_rejected: bool = False) -> None:
        """Begin with an empty ledger; :meth:`prepare` reads it."""
        self.retry_rejected = retry_rejected
        self.entries: dict[str, Entry] = {}
        self.application = ""
        self.last_append = 0
        self.entries_before = 0
        self.last_sweep = 0.0

    def prepare(self, lake: Lake) -> None:
        """Load the ledger, look for changes that the stream did not notice, and retry rejected files on demand."""
        landing_folder(lake).correct_paths("ingest")
        self.entries = ledger.latest(lake)
        self.application = lake.store.identity(tables.BRONZE_FILES)
        appended = numbered_append.last_number(lake, self.application)
        if appended is None or appended > ledger.last_accepted(lake):
            self._catch_up(lake)
        self.last_append = appended or 0
        if not landing_folder(lake).sweeps_at_start:
            self.last_sweep = _last_sweep(lake)
        self._sweep_if_due(lake)
        if self.retry_rejected:
            self._retry(lake)
        self._list_rejected(lake)
        self.entries_before = len(self.entries)

    @property
    def new_files(self) -> int:
        """Number of files that got their first entry between :meth:`prepare` and :meth:`finish`."""
        return len(self.entries) - self.entries_before

    def ingest_batch(self, lake: Lake, batch: DataFrame, batch_id: int) -> None:
        """Ingest a micro-batch of files."""
        folder = landing_folder(lake)
        # A micro-batch that was cut before the lake was moved names files in the lake's former place.
        files = [file for file in folder.files_of(batch) if folder.holds(file) and landing.is_finished(file.source)]
        self._ingest(lake, [file for file in files if not _is_known(file, self.entries)])
        self._sweep_if_due(lake)

    def finish(self, lake: Lake) -> None:
        """Ingest the files that the stream skipped."""
        # The micro-batches may have run in another process.
        self.entries = ledger.latest(lake)
        self._ingest_skipped_files(lake)

    def _sweep_if_due(self, lake: Lake) -> None:
        # If the clock was ahead, the last sweep is in the future.
        if abs(time.time() - self.last_sweep) > landing_folder(lake).sweep_seconds:
            self.sweep(lake)

    def sweep(self, lake: Lake) -> None:
        """Handle files that the stream never reports: rewritten and lost ones, and those that are not regular files.

        Spark reports a path only once, so a rewritten file is noticed only in a full listing. A rewritten file that was
        rejected, perhaps because it was incomplete, is read again.
        """
        completed: list[File] = []
        new: list[File] = []
        others: list[File] = []
        changed: list[File] = []
        folder = landing_folder(lake)
        for file in folder.list_files():
            entry = self.entries.get(file.source)
            if entry is None:
                if file.size is None:
                    others.append(file)
                else:  # neither Spark nor Arrow finds a file whose name is not UTF-8
                    (new if is_utf8(file.path) else completed).append(file)
            elif file.size is not None and not _is_known(file, self.entries):
                completed.append(file)
            elif entry.status != REJECTED and entry.file.size and not _is_same_version(entry.file, file):
                changed.append(file)
        # Find moved files before one with other content takes a former name: its entry would replace theirs.
        moved = _rejected(new, _moved(folder, new, self.entries, {}))
        rewritten = _rewritten(folder, changed, self.entries)
        self._add_entries(lake, rewritten + moved + _outcomes(folder, others, self.entries))
        self._ingest_in_parts(lake, completed)
        self._ingest_skipped_files(lake)
        self.last_sweep = time.time()
        _sweep_file(lake).touch()

    def _ingest_skipped_files(self, lake: Lake) -> None:
        self._ingest(lake, [file for file in self._skipped_files(lake) if not _is_known(file, self.entries)])

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

    def _ingest_in_parts(self, lake: Lake, files: list[File]) -> None:
        size = lake.settings.max_files_per_trigger
        for begin in range(0, len(files), size):
            self._ingest(lake, files[begin : begin + size])

    def _ingest(self, lake: Lake, files: list[File]) -> None:
        """Append files to bronze, each completely or not at all, and add their entries to the ledger.

        The first attempt checks only the files' footers. If appending them together fails, for whatever reason, each
        file is read completely before the next attempt, and rejected if that fails.
        """
        folder = landing_folder(lake)
        outcomes = _outcomes(folder, files, self.entries)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                accepted = [entry.file for entry in outcomes if entry.status == ACCEPTED and entry.rows]
                if accepted:
                    self._append(lake, folder, accepted)
                break
            except Exception:
                # A file may have changed or vanished since it was checked; if none has, the error has another cause.
                # Every exception counts: Spark's errors are py4j's inside a micro-batch and pyspark's outside (seen in
                # PySpark 4.2).
                stop.check()
                previous_append = self.last_append
                self.last_append = self._last_append(lake)
                self.entries = ledger.latest(lake)
                self._catch_up(lake)
                unknown = [file for file in folder.current(files) if not _is_known(file, self.entries)]
                new_outcomes = _outcomes(folder, unknown, self.entries, whole=True)
                if attempt == _ATTEMPTS or (new_outcomes, self.last_append) == (outcomes, previous_append):
                    raise
                outcomes = new_outcomes
        self._add_entries(lake, outcomes)

    def _append(self, lake: Lake, folder: LandingFolder, files: list[File]) -> None:
        append = NumberedAppend(self.application, self._next_number())
        conflict.retried(partial(folder.append_to_bronze, files, append))
        append.require_commit(lake)

    def _next_number(self) -> int:
        return max([self.last_append, *(entry.number for entry in self.entries.values())]) + 1

    def _last_append(self, lake: Lake) -> int:
        return max(self.last_append, numbered_append.last_number(lake, self.application) or 0)

    def _add_entries(self, lake: Lake, entries: list[Entry]) -> None:
        """Append entries to the ledger, and update the table of rejected files if they change it."""
        number = self._next_number()
        entries = [replace(entry, number=number) for entry in entries]
        if not entries:
            return
        changes_rejected = any(entry.status != ACCEPTED or entry.file.source in self.entries for entry in entries)
        _warn(entries, self.entries)
        self.entries |= ledger.append(lake, entries)
        if changes_rejected:
            self._list_rejected(lake)

    def _list_rejected(self, lake: Lake) -> None:
        """Update the table of rejected files from the ledger; after a crash, the next run does it."""
        ledger.list_rejected(lake, list(self.entries.values()))

    def _catch_up(self, lake: Lake) -> None:
        """Add the entries of files whose rows are in bronze to the ledger, after a crash between the two commits."""
        folder = landing_folder(lake)
        named = "WHERE _source_file IS NOT NULL GROUP BY _source_file"
        sources = lake.store.query(
            f"SELECT _source_file, count(*) AS rows FROM {tables.BRONZE_TRANSACTIONS.name} {named}",
            tables.BRONZE_TRANSACTIONS,
        ).to_pylist()
        counts = {}
        for row in sources:
            entry = self.entries.get(row["_source_file"])
            if entry is None or entry.status == REJECTED:
                counts[folder.missing(f"{folder.path}/{row['_source_file']}")] = row["rows"]
        files = folder.current(list(counts))
        self._add_entries(
            lake, [Entry(file, ACCEPTED, rows) for file, rows in zip(files, counts.values(), strict=True)]
        )

    def _retry(self, lake: Lake) -> None:
        """Ingest rejected files that can be read now."""
        folder = landing_folder(lake)
        rejected = [
            entry.file
            for entry in self.entries.values()
            # If a link's file is gone, reading the link would ingest the rows twice.
            if entry.status == REJECTED and not _is_another_name(entry) and folder.holds(entry.file)
        ]
        existing = [file for file in folder.current(rejected) if file.size is not None]
        readable = [
            file
            for file, count in zip(existing, folder.count_rows(existing, whole=True), strict=True)
            if count.error is None
        ]
        self._ingest_in_parts(lake, readable)


def _warn(entries: Sequence[Entry], earlier: Mapping[str, Entry]) -> None:
    """Say which files are rejected, and which are accepted that were rejected before."""
    rejected = [entry for entry in entries if entry.status != ACCEPTED]
    accepted = [entry for entry in entries if entry.status == ACCEPTED and entry.file.source in earlier]
    if rejected:
        first = rejected[0]
        _LOG.warning(
            "ingest: %s rejected, such as %s: %s (table %s)",
            *(counted(len(rejected), "file"), first.file.source, first.error, tables.BRONZE_REJECTED_FILES.name),
        )
    if accepted:
        _LOG.warning("ingest: %s accepted that had been rejected before", counted(len(accepted), "file"))


def _last_sweep(lake: Lake) -> float:
    """Return the time of the last sweep by any process, in seconds since 1970; 0 if there was none."""
    file = _sweep_file(lake)
    return file.stat().st_mtime if file.exists() else 0.0


def _sweep_file(lake: Lake) -> Path:
    return lake.checkpoint("ingest").folder / "swept"


def _outcomes(
    folder: LandingFolder, files: list[File], entries: Mapping[str, Entry], whole: bool = False
) -> list[Entry]:
    """Count each file's rows. A file that cannot be read is rejected, and so are links and files that were moved."""
    links = folder.other_names(files, {source for source, entry in entries.items() if entry.status != REJECTED})
    reasons = {
        file.source: "its name is not UTF-8: land it under another name" for file in files if not is_utf8(file.path)
    }
    reasons |= {link: f"{_ANOTHER_NAME} {name}, and is read under that" for link, name in links.items()}
    named = [file for file in files if file.source not in reasons]
    counts = dict(zip(named, folder.count_rows(named, whole, with_digests=True), strict=True))
    digests = {file.source: count.digest for file, count in counts.items() if count.digest}
    reasons |= _moved(folder, files, entries, digests)
    return [
        Entry(file, REJECTED if count.error else ACCEPTED, count.rows, count.error, digest=count.digest)
        for file, count in counts.items()
        if file.source not in reasons
    ] + _rejected(files, reasons)


def _rejected(files: list[File], reasons: Mapping[str, str]) -> list[Entry]:
    return [Entry(file, REJECTED, error=reasons[file.source]) for file in files if file.source in reasons]


def _moved(
    folder: LandingFolder, files: list[File], entries: Mapping[str, Entry], digests: Mapping[str, str]
) -> dict[str, str]:
    """Return the files that were already read under a former name, with the reason not to read them again.

    On a disk a file has an inode, which it retains when it is renamed. Elsewhere a file counts as renamed if it has the
    content of a known file, and the file with the former name no longer has it: two files may be alike.

    Args:
        folder: the landing folder.
        files: the files.
        entries: the ledger.
        digests: hashes of the files whose content is compared.
    """
    read = [entry for entry in entries.values() if entry.status == ACCEPTED and folder.holds(entry.file)]
    by_inode = {_version(entry.file): entry.file for entry in read if entry.file.inode is not None}
    by_digest = {entry.digest: entry.file for entry in read if entry.digest}
    before = {}
    for file in files:
        former = by_inode.get(_version(file)) or by_digest.get(digests.get(file.source, ""))
        if former is not None and former.source != file.source:
            before[file] = former
    return {
        file.source: f"{_RENAMED} {former.source}"
        for (file, former), there in zip(before.items(), folder.current(list(before.values())), strict=True)
        # In a copy of the lake, a former link is a separate file.
        if _version(there) != _version(former) or _is_another_name(entries.get(file.source))
    }


def _is_another_name(entry: Entry | None) -> bool:
    """Return whether a file was rejected because its rows are in bronze under another name."""
    return entry is not None and (entry.error or "").startswith((_ANOTHER_NAME, _RENAMED))


def _digests_of_same_size(folder: LandingFolder, files: Iterable[File], entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return the hashes of files whose size the ledger has; others cannot have the content of a known file."""
    sizes = {entry.file.size for entry in entries.values() if entry.digest}
    return folder.digests([file for file in files if file.size in sizes])


def _rewritten(folder: LandingFolder, files: list[File], entries: Mapping[str, Entry]) -> list[Entry]:
    """Return new entries for files whose size or time has changed since they were accepted.

    Copying a lake changes the times of files and not their content: such a file is still accepted. The ledger has no
    hash of a file without rows.
    """
    digests = folder.digests(files)
    old = [file for file in files if entries[file.source].digest is None]
    rows = {file.source: count.rows for file, count in zip(old, folder.count_rows(old), strict=True)}
    outcomes = []
    for file in files:
        entry = entries[file.source]
        digest = digests.get(file.source)
        is_alike = (file.size, rows.get(file.source)) == (entry.file.size, entry.rows)
        if digest == entry.digest if entry.digest else is_alike:
            outcomes.append(replace(entry, file=file, digest=digest, noted_at=0))
        else:
            error = (
                f"it was rewritten after it was ingested: {_description(entry.file)} then, {_description(file)} now; "
                "the ingested rows stay, the new ones are not read: land them under another name"
            )
            outcomes.append(Entry(file, REWRITTEN, entry.rows, error, digest=digest))
    return outcomes


def _version(file: File) -> tuple[int | None, int | None, int | None]:
    return file.inode, file.size, file.modified


def _is_known(file: File, entries: Mapping[str, Entry]) -> bool:
    """Return whether a file need not be read: it was read, or this version of it was rejected."""
    entry = entries.get(file.source)
    return entry is not None and (entry.status != REJECTED or _is_same_version(entry.file, file))


def _is_same_version(first: File, second: File) -> bool:
    return (first.size, first.modified) == (second.size, second.modified)


def _description(file: File) -> str:
    if file.size is None or file.modified is None:
        return "no file"
    return f"{file.size:,} bytes of {datetime.fromtimestamp(file.modified / 1e6, UTC):%Y-%m-%d %H:%M:%S}"
