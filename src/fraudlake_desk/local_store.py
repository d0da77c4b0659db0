"""Local store: reads and writes the tables of a lake on this machine with delta-rs, without Spark."""

from __future__ import annotations

import atexit
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
from filelock import FileLock

from fraudlake.errors import UsageError
from fraudlake.lake import compaction, conflict, delta_rs_reader, lake_format
from fraudlake.lake.delta_rs_writer import DeltaRsWriter, is_plain
from fraudlake_desk.answers import Answers
from fraudlake_desk.store import Answer, Asked, Store, complete
from fraudlake_desk.together import Together

if TYPE_CHECKING:
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

_ANSWERS = 64 << 20
"""Bytes of cached answers to queries: a desk shows the same cases to many people."""
_COMPACT_EVERY = 20
"""Commits after which a table's files are compacted: every page reads the events and verdicts that people write."""
_CORES = os.cpu_count() or 1


class LocalStore(Store):
    """A lake on this machine, read and written by delta-rs; neither starts Spark nor loads pyspark.

    Raises:
        MissingLakeError: there is no lake.
        FraudlakeError: another version of fraudlake made it.
    """

    keeps_answers = True
    explode = "unnest"

    def __init__(self, settings: Settings) -> None:
        """Open the lake that the settings name."""
        self.root = settings.lake.absolute()
        self.name = str(self.root)
        self._opened, self._answers = delta_rs_reader.Opened(), Answers(_ANSWERS)
        self._running, self._standing_in = BoundedSemaphore(_CORES), Lock()
        self._turn, self._writer = Lock(), 0
        self._written = delta_rs_reader.Opened()
        self._together: dict[Callable[..., Any], Together[Any, Any]] = {}
        lake_format.require(self.root)
        self.settings = settings
        self.settings = self._defined()

    def has(self, table: Table) -> bool:
        """Return whether a table exists."""
        return self._opened.commit(self._folder(table)) is not None

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`.

        Raises:
            UsageError: a table has deletion vectors, which delta-rs does not apply.
        """
        folders = {table.name: self._folder(table) for table in read}
        commits = tuple(self._opened.commit(folders[table.name]) for table in read)

        def run() -> pa.Table:
            missing = (table for table, commit in zip(read, commits, strict=True) if commit is None)
            return self._run(statement, folders | {table.name: self._stand_in(table) for table in missing})

        return self._answers.get(statement, commits, run)

    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names: see :meth:`Store.ask`.

        Raises:
            UsageError: a table has deletion vectors, which delta-rs does not apply.
        """
        folders = {name: self.root / "tables" / name for name in sorted(names)}
        commits = {name: self._opened.commit(folder) for name, folder in folders.items()}
        present = {name: folders[name] for name, commit in commits.items() if commit is not None}
        return self._answers.get(statement, tuple(commits.values()), lambda: self._opened.query(statement, present))

    def _run(self, statement: str, folders: Mapping[str, Path]) -> pa.Table:
        # More queries than cores would slow all of them down. The thread that writes does not wait for a slot.
        with nullcontext() if self._writer == get_ident() else self._running:
            return self._opened.query(statement, folders)

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Wait until no other thread of this process writes: see :meth:`Store.in_turn`."""
        with self._turn:
            self._writer = get_ident()
            try:
                yield
            finally:
                self._writer = 0

    def together(self, carry_out: Callable[[Any, Sequence[Asked]], list[Answer]], asked: Asked) -> Answer:
        """Run a call batched with those of other threads, in one turn: see :meth:`Store.together`."""

        def in_turn(all_: Sequence[Asked]) -> list[Answer]:
            with self.in_turn():
                return carry_out(self, all_)

        answer: Answer = self._together.setdefault(carry_out, Together(in_turn))(asked)
        return answer

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        self._make(table)
        conflict.retried(lambda: self._writer_of(table).write(complete(rows, table), "append"))

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        self._make(table)
        conflict.retried(lambda: self._insert(table, complete(rows, table), keys))

    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows or none: see :meth:`Store.insert_all`."""
        self._make(table)
        conflict.retried(lambda: self._insert(table, complete(rows, table), (key,), is_whole=True))

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        made = complete(rows, table)
        conflict.retried(lambda: write_deltalake(self._open(table), made, mode="overwrite", predicate=condition))

    def _insert(self, table: Table, rows: pa.Table, keys: Sequence[str], is_whole: bool = False) -> None:
        # Delta would refuse one of two concurrent commits, and a conflict takes longer than an insertion.
        with FileLock(self.root / f".{table.name}.lock"):
            self._writer_of(table, self._written.now(self._folder(table))).insert_rows(rows, keys, is_whole)

    def _make(self, table: Table) -> None:
        with FileLock(self.root / ".lock"):
            if not self.has(table):
                folder = self._folder(table)
                shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed here: it has no commit
                DeltaTable.create(folder, table.schema, configuration=dict(table.properties))

    def _writer_of(self, table: Table, delta: DeltaTable | None = None) -> DeltaRsWriter:
        delta = delta or self._open(table)
        if not is_plain(delta):
            raise UsageError(f"{table.name} of {self.name} has properties that delta-rs cannot write: remove them")
        compact = partial(
            compaction.compact,
            self.root,
            table,
            self.settings,
            lambda: delta_rs_reader.files(self._open(table)),
            lambda: self._writer_of(table),
        )
        return DeltaRsWriter(delta, self._folder(table), table, self.root / "spool", compact, _COMPACT_EVERY)

    def _stand_in(self, table: Table) -> Path:
        """Return the folder of an empty table, which stands in for a missing one."""
        folder = self._stand_ins / table.name
        with self._standing_in:
            DeltaTable.create(folder, table.schema, mode="ignore")
        return folder

    def _open(self, table: Table) -> DeltaTable:
        return DeltaTable(self._folder(table))

    def _folder(self, table: Table) -> Path:
        return self.root / "tables" / table.name

    @cached_property
    def _stand_ins(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fraudlake-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
