"""Local store: the tables of a lake on this machine become Arrow rows, and rows are written, without Spark."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from filelock import FileLock

from fraudlake.desk.store import Store, complete
from fraudlake.errors import UsageError
from fraudlake.lake import compaction, conflict, delta_rs_reader, lake_format
from fraudlake.lake.delta_rs_writer import DeltaRsWriter, is_plain

if TYPE_CHECKING:
    from fraudlake.settings import Settings
    from fraudlake.tables import Table


class LocalStore(Store):
    """A lake on this machine. It is read and written by delta-rs, and neither starts Spark nor loads pyspark.

    Raises:
        MissingLakeError: there is no lake.
        FraudlakeError: another version of fraudlake made it.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the lake that the settings name."""
        self.root = settings.lake.absolute()
        self.name = str(self.root)
        self._opened = delta_rs_reader.Opened()
        lake_format.require(self.root)
        self.settings = settings
        self.settings = self._defined()

    def has(self, table: Table) -> bool:
        """Return whether a table is there."""
        return DeltaTable.is_deltatable(str(self._folder(table)))

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`.

        Raises:
            UsageError: a table has deleted rows that delta-rs does not see.
        """
        registered = {
            table.name: self._opened.now(self._folder(table)) if self.has(table) else self._stand_in(table)
            for table in read
        }
        for name, delta in registered.items():
            if not delta_rs_reader.is_readable(delta):
                raise UsageError(f"{name} of {self.name} has deletion vectors: REORG TABLE {name} APPLY (PURGE)")
        return delta_rs_reader.query(statement, registered)

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        self._make(table)
        conflict.retried(lambda: self._writer(table).write(complete(rows, table), "append"))

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        self._make(table)
        # Processes of this machine wait for each other: a conflict costs longer than an insertion.
        with FileLock(self.root / f".{table.name}.lock"):
            conflict.retried(lambda: self._writer(table).insert_rows(complete(rows, table), keys))

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        made = complete(rows, table)
        conflict.retried(lambda: write_deltalake(self._open(table), made, mode="overwrite", predicate=condition))

    def _make(self, table: Table) -> None:
        with FileLock(self.root / ".lock"):
            if not self.has(table):
                folder = self._folder(table)
                shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed here: it has no commit
                DeltaTable.create(folder, table.schema, configuration=dict(table.properties))

    def _writer(self, table: Table) -> DeltaRsWriter:
        delta = self._open(table)
        if not is_plain(delta):
            raise UsageError(f"{table.name} of {self.name} has properties that delta-rs cannot write: remove them")
        compact = partial(
            compaction.compact,
            self.root,
            table,
            self.settings,
            lambda: delta_rs_reader.files(self._open(table)),
            lambda: self._writer(table),
        )
        return DeltaRsWriter(delta, self._folder(table), table, self.root / "spool", compact)

    def _open(self, table: Table) -> DeltaTable:
        return DeltaTable(self._folder(table))

    def _folder(self, table: Table) -> Path:
        return self.root / "tables" / table.name

    @cached_property
    def _stand_ins(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="fraudlake-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _stand_in(self, table: Table) -> DeltaTable:
        """Return an empty table in the place of one that is not there."""
        return DeltaTable.create(self._stand_ins / table.name, table.schema, mode="ignore")
