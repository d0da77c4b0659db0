"""delta-rs reader: runs SQL over Delta tables in DataFusion, since Spark takes ten seconds to start."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from fraudlake.errors import FraudlakeError, UsageError
from fraudlake.lake.data_file import DataFile

_MISSING_FILE = re.compile(r"Object at location (.+?) not found")
_NOT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class UnsupportedError(UsageError):
    """A table has features of Delta that delta-rs lacks."""


class Opened:
    """Tables that are opened once and then updated from their logs, for a process that queries them repeatedly.

    Reading the log of a table takes as long as a query: half a millisecond per commit. Threads may query at once.
    """

    def __init__(self) -> None:
        """Begin without open tables."""
        self._tables: dict[Path, _Open] = {}
        # A thread that waits inside delta-rs keeps Python's global lock, so all threads would wait (seen in 1.6).
        self._locks: dict[Path, Lock] = defaultdict(Lock)

    def commit(self, folder: Path) -> Hashable | None:
        """Return a key of the current version of the table in a folder; None if there is no table."""
        entry = self._tables.get(folder)
        if entry is not None and entry.is_latest(folder):
            return entry.commit
        with self._locks[folder]:
            followed = self._followed(folder)
            return followed.commit if followed else None

    def now(self, folder: Path) -> DeltaTable | None:
        """Return the current table in a folder, for one thread; None if there is no table."""
        with self._locks[folder]:
            followed = self._followed(folder)
            return followed.table if followed else None

    def has(self, folder: Path) -> bool:
        """Return whether there is a table in a folder."""
        entry = self._tables.get(folder)
        return (entry is not None and entry.is_present(folder)) or DeltaTable.is_deltatable(str(folder))

    def query(self, statement: str, sources: Mapping[str, Path | DeltaTable]) -> pa.Table:
        """Return the rows of a query over tables: the current ones in folders, and others as they were opened.

        It bypasses delta-rs's own Arrow reader, whose threads call Python and abort the process while Python ends
        (``terminate called``, seen with deltalake 1.6).

        Args:
            statement: the query.
            sources: the tables by their names in the query.

        Raises:
            FraudlakeError: a table or one of its files is gone.
            UnsupportedError: a table has deletion vectors.
        """
        engine = QueryBuilder()
        for name, source in sources.items():
            if isinstance(source, DeltaTable):
                _register(engine, name, source)
            else:
                self._register(engine, name, source)
        return _rows(engine, statement)

    def _register(self, engine: QueryBuilder, name: str, folder: Path) -> None:
        with self._locks[folder]:
            followed = self._followed(folder)
            if followed is None:
                raise FraudlakeError(f"{folder} is gone: run the command again")
            _register(engine, name, followed.table)

    def _followed(self, folder: Path) -> _Open | None:
        """Update a table from its log; open it again if its latest known commit is gone or was replaced."""
        entry = self._tables.get(folder)
        if entry is not None and entry.is_latest(folder):
            return entry
        if entry is not None and entry.is_present(folder):
            table = entry.table
            table.update_incremental()
        elif DeltaTable.is_deltatable(str(folder)):
            table = DeltaTable(folder)
        else:
            return None
        # If the commit was removed from the log after a checkpoint, the table is opened again each time.
        commit = _commit(folder, table.version()) or object()
        self._tables[folder] = followed = _Open(table, table.version(), commit)
        return followed


@dataclass(frozen=True)
class _Open:
    table: DeltaTable
    version: int
    commit: Hashable

    def is_present(self, folder: Path) -> bool:
        """Return whether the log still has the version, and has not been replaced."""
        return self.commit == _commit(folder, self.version)

    def is_latest(self, folder: Path) -> bool:
        """Return whether there is no later version; delta-rs would list the whole log for that."""
        return self.is_present(folder) and _commit(folder, self.version + 1) is None


def _commit(folder: Path, version: int) -> Hashable | None:
    """Return a key of the file of a commit; None if there is no such file."""
    try:
        file = os.stat(f"{folder}/_delta_log/{version:020}.json")  # noqa: PTH116 (twice as fast, and a page asks 50 times)
    except FileNotFoundError:
        return None
    return version, file.st_ino, file.st_mtime_ns, file.st_size


def is_readable(delta: DeltaTable) -> bool:
    """Return whether delta-rs can read the table: it cannot read deletion vectors (seen in 1.6)."""
    return "deletionVectors" not in (delta.protocol().reader_features or ())


def _register(engine: QueryBuilder, name: str, table: DeltaTable) -> None:
    if not is_readable(table):
        raise UnsupportedError(f"{name} has deletion vectors: REORG TABLE {name} APPLY (PURGE)")
    engine.register(name, table)


def _rows(engine: QueryBuilder, statement: str) -> pa.Table:
    try:
        rows = pa.table(engine.execute(statement))
    except (pa.ArrowException, DeltaError) as error:
        match = _MISSING_FILE.search(str(error))
        if match is None:
            raise
        file = match[1]
        raise FraudlakeError(
            f"{file} is gone, which the log of its table names: run the command again if 'fraudlake optimize' "
            "has just removed files, otherwise restore the file from a copy"
        ) from None
    return rows.cast(pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema]))


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return a type without views, which Arrow can neither sort nor filter."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return _NOT_VIEWS.get(kind, kind)


def files(delta: DeltaTable) -> list[DataFile]:
    """Return the current files of a table, from its log."""
    columns = delta.metadata().partition_columns
    return [
        DataFile(
            file["path"],
            file["size_bytes"],
            file["modification_time"],
            {column: _text(file["partition"][column]) for column in columns},
        )
        for file in pa.table(delta.get_add_actions()).to_pylist()
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
