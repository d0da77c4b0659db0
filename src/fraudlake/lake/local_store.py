"""Local store: reads and writes the tables of a lake on this machine with delta-rs, without Spark."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from threading import BoundedSemaphore, Lock, get_ident
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from filelock import FileLock

from fraudlake.errors import FraudlakeError
from fraudlake.lake import compaction, conflict, delta_rs_reader, lake_format
from fraudlake.lake.answers import Answers
from fraudlake.lake.commit import Commit, Detail
from fraudlake.lake.delta_rs_writer import DeltaRsWriter, is_plain
from fraudlake.lake.store import Answer, LakeStore, Request, Snapshot, complete, declared
from fraudlake.lake.together import Together
from fraudlake.process import host

if TYPE_CHECKING:
    from datetime import timedelta

    from fraudlake.lake.data_file import DataFile
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

_ANSWERS = 64 << 20
"""Bytes of cached answers to queries: a desk shows the same cases to many people."""
_COMPACT_EVERY = 20
"""Commits after which a table's files are compacted: every page reads the events and verdicts that people write."""
_CORES = os.cpu_count() or 1
_KEEPS_LOG = {"delta.enableExpiredLogCleanup": "false"}
"""Otherwise any commit may remove old parts of the log, by the clock alone, even if a stream has still to read them."""


class LocalStore(LakeStore):
    """A lake on this machine, read and written by delta-rs; neither starts Spark nor loads pyspark.

    Raises:
        MissingLakeError: there is no lake.
        FraudlakeError: another version of fraudlake made it.
    """

    keeps_answers = True

    def __init__(self, settings: Settings, spark: LakeStore | None = None) -> None:
        """Open the lake that the settings name.

        Args:
            settings: the settings; its definition completes them.
            spark: the store of an open lake, which reads tables that delta-rs cannot read; the settings are complete.
        """
        self.root = settings.lake.absolute()
        self.name = str(self.root)
        self._spark = spark
        self._opened = delta_rs_reader.Opened()
        self._answers = Answers(_ANSWERS)
        self._running = BoundedSemaphore(_CORES)
        self._standing_in = Lock()
        self._turn = Lock()
        self._writer = 0
        self._written = delta_rs_reader.Opened()
        self._together: dict[Callable[..., Any], Together[Any, Any]] = {}
        self.settings = settings
        if spark is None:
            lake_format.require(self.root)
            self.settings = self._defined()

    def user_name(self) -> str:
        """Return the user of the system: see :meth:`Store.user_name`."""
        return host.system_user()

    def has(self, table: Table) -> bool:
        """Return whether a table exists."""
        return self._opened.has(self.path(table))

    def query(self, statement: str, *read: Table | Snapshot, given: pa.Table | None = None) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`.

        Raises:
            UnsupportedError: a table has deletion vectors, which delta-rs does not apply, and there is no Spark.
        """
        commits = [self._opened.commit(self.path(one)) for one in read]

        def run(**more: DeltaTable) -> pa.Table:
            sources = {one.name: self._source(one, commit is None) for one, commit in zip(read, commits, strict=True)}
            try:
                return self._run(statement.replace("explode(", "unnest("), sources | more)
            except delta_rs_reader.UnsupportedError:
                if self._spark is None:
                    raise
                return self._spark.query(statement, *read, given=given)

        if given is None:
            versions = [one.version for one in read if isinstance(one, Snapshot)]
            return self._answers.get(statement, (commits, versions), run)
        with tempfile.TemporaryDirectory(prefix="fraudlake-") as folder:
            write_deltalake(folder, given)
            return run(given=DeltaTable(folder))

    def _source(self, read: Table | Snapshot, is_missing: bool) -> Path | DeltaTable:
        if isinstance(read, Snapshot):
            return self._open(read.table, read.version)
        return self._stand_in(read) if is_missing else self.path(read)

    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names: see :meth:`Store.ask`.

        Raises:
            UnsupportedError: a table has deletion vectors, which delta-rs does not apply.
        """
        folders = {name: self.root / "tables" / name for name in sorted(names)}
        commits = {name: self._opened.commit(folder) for name, folder in folders.items()}
        present = {name: folders[name] for name, commit in commits.items() if commit is not None}
        return self._answers.get(statement, tuple(commits.values()), lambda: self._opened.query(statement, present))

    def _run(self, statement: str, sources: Mapping[str, Path | DeltaTable]) -> pa.Table:
        # More queries than cores would slow all of them down. The thread that writes does not wait for a slot.
        with nullcontext() if self._writer == get_ident() else self._running:
            return self._opened.query(statement, sources)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Wait until no other thread of this process writes: see :meth:`Store.in_turn`."""
        with self._turn:
            self._writer = get_ident()
            try:
                yield
            finally:
                self._writer = 0

    def together(self, carry_out: Callable[[Any, Sequence[Request]], list[Answer]], request: Request) -> Answer:
        """Run a call batched with those of other threads, in one turn: see :meth:`Store.together`."""

        def in_turn(all_: Sequence[Request]) -> list[Answer]:
            with self.in_turn():
                return carry_out(self, all_)

        answer: Answer = self._together.setdefault(carry_out, Together(in_turn))(request)
        return answer

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        self._complete(table)
        conflict.retried(
            lambda: self.writer(table, compact_every=_COMPACT_EVERY).write(complete(rows, table), "append")
        )

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        self._complete(table)
        conflict.retried(lambda: self._insert(table, complete(rows, table), keys))

    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows or none: see :meth:`Store.insert_all`."""
        self._complete(table)
        conflict.retried(lambda: self._insert(table, complete(rows, table), (key,), is_whole=True))

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        made = complete(rows, table)
        conflict.retried(lambda: write_deltalake(self._open(table), made, mode="overwrite", predicate=condition))

    def _insert(self, table: Table, rows: pa.Table, keys: Sequence[str], is_whole: bool = False) -> None:
        # Delta would refuse one of two concurrent commits, and a conflict takes longer than an insertion.
        with FileLock(self.root / f".{table.name}.lock"):
            delta = self._written.now(self.path(table))
            self.writer(table, delta, _COMPACT_EVERY).insert_rows(rows, keys, is_whole)

    def writer(self, table: Table, delta: DeltaTable | None = None, compact_every: int | None = None) -> DeltaRsWriter:
        """Return the writer of a table.

        Args:
            table: the table, with its declared columns.
            delta: the table as it is now; by default it is opened.
            compact_every: the number of commits after which it is compacted: see :class:`DeltaRsWriter`.

        Raises:
            UnsupportedError: the table has features that delta-rs does not write.
        """
        delta = delta or self._open(table)
        if not is_plain(delta):
            raise delta_rs_reader.UnsupportedError(
                f"{table.name} of {self.name} has properties that delta-rs cannot write: remove them"
            )
        rewriting = partial(self.files, table), partial(self.writer, table)
        compact = partial(compaction.compact, self.root, table, self.settings, *rewriting)
        return DeltaRsWriter(delta, self.path(table), table, self.root / "spool", compact, compact_every)

    def make(self, table: Table) -> None:
        """Create a table that is missing.

        Raises:
            FraudlakeError: it has files of rows without a log.
        """
        folder = self.emptied(table)
        arranged = list(table.partitioned_by)
        properties = _KEEPS_LOG | dict(table.properties)
        DeltaTable.create(folder, table.schema, partition_by=arranged, configuration=properties)

    def emptied(self, table: Table) -> Path:
        """Return the folder of a table that is to be made, without what a process that was killed has left there."""
        self.require_no_files(table)
        folder = self.path(table)
        # Spark refuses a folder without a commit.
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def _complete(self, table: Table) -> None:
        with FileLock(self.root / ".lock"):
            if not self.has(table):
                self.make(table)

    def require_no_files(self, table: Table) -> None:
        """Check that a table without a log has no files of rows."""
        folder = self.path(table)
        if any(folder.rglob("*.parquet")):
            raise FraudlakeError(f"{folder} has files of rows, and its _delta_log is gone: restore it")

    def version(self, table: Table) -> int:
        """Return a table's current version."""
        log = self.path(table) / "_delta_log"
        return max((int(commit.stem) for commit in log.glob("*.json") if commit.stem.isdigit()), default=0)

    def history(self, table: Table, limit: int | None = None) -> list[Commit]:
        """Return a table's commits in its log, the newest first; at most ``limit``."""
        commits = [Commit.of(entry) for entry in self._open(table).history(limit)]
        # delta-rs finds none if the lake's path has a # or a question mark (seen in 1.6).
        return commits if commits or self._spark is None else self._spark.history(table, limit)

    def identity(self, table: Table) -> str:
        """Return the id that Delta gave a table when it was made; a table made in its place has another one."""
        return str(self._open(table).metadata().id)

    def detail(self, table: Table) -> Detail:
        """Return a table's metadata from its log."""
        delta = self._open(table)
        if self._spark is not None and not is_plain(delta):
            return self._spark.detail(table)
        metadata = delta.metadata()
        folders = [file.rpartition("/")[0] for file in delta.file_uris()]
        is_compact = len(folders) == len(set(folders))
        columns = tuple(metadata.partition_columns)
        created = metadata.created_time
        return Detail(str(metadata.id), columns, (), metadata.configuration, is_compact, created)

    def column_types(self, table: Table) -> dict[str, str]:
        """Return the columns that a table has now: their types in SQL, by name."""
        from pyspark.sql.types import StructType

        # Delta writes a schema as Spark does; asking Spark for it takes longer.
        columns = StructType.fromJson(json.loads(self._open(table).schema().to_json()))
        return {column.name: column.dataType.simpleString().upper() for column in columns}

    def files(self, table: Table) -> list[DataFile]:
        """Return the files of a table as it is now, from its log."""
        delta = self._open(table)
        if self._spark is not None and not delta_rs_reader.is_readable(delta):
            return self._spark.files(table)
        return delta_rs_reader.files(delta)

    def may_have_unused_files(self, table: Table, retention: timedelta) -> bool:
        """Return whether VACUUM would find files to remove, since Spark's takes seconds per table."""
        delta = self._open(table)
        hours = int(retention.total_seconds() // 3600)
        return not is_plain(delta) or bool(
            delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        )

    def remove_old_log(self, table: Table) -> None:
        """Remove commits before a checkpoint of the log that are older than ``delta.logRetentionDuration``."""
        delta = self._open(table)
        if is_plain(delta):
            delta.cleanup_metadata()

    def path(self, table: Table | Snapshot) -> Path:
        """Return the folder of a table."""
        return self.root / "tables" / table.name

    def folder(self, table: Table) -> Path:
        """Return the folder of a table or, if it is missing, of an empty one outside the lake."""
        return self.path(table) if self.has(table) else self._stand_in(table)

    def _open(self, table: Table, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.path(table), version)
        except TableNotFoundError:
            return DeltaTable(self._stand_in(table), version)

    def _stand_in(self, table: Table) -> Path:
        """Return the folder of an empty table, which stands in for a missing one."""
        folder = self._stand_ins / table.name
        with self._standing_in:
            DeltaTable.create(folder, declared(table, self.settings).schema, mode="ignore")
        return folder

    @cached_property
    def _stand_ins(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fraudlake-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
