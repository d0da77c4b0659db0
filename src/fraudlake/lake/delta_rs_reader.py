"""delta-rs reader: SQL over Delta tables becomes Arrow rows, by DataFusion, since Spark takes ten seconds to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from fraudlake.errors import FraudlakeError
from fraudlake.lake.data_file import DataFile

_MISSING_FILE = re.compile(r"Object at location (.+?) not found")
_NOT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


class Opened:
    """Tables that are opened once and then follow their logs, for a process that asks again and again.

    To read the log of a table takes as long as to query it: half a millisecond a commit.
    """

    def __init__(self) -> None:
        """No table is open."""
        self._tables: dict[Path, tuple[DeltaTable, tuple[int, ...] | None]] = {}
        self._lock = Lock()

    def now(self, folder: Path) -> DeltaTable:
        """Return the table of a folder as it is now, for reading.

        A table whose latest known commit is gone, or another one, has been replaced, and is opened anew.
        """
        with self._lock:
            table, commit = self._tables.get(folder, (None, None))
            if table is not None and commit is not None and commit == _commit(folder, table):
                table.update_incremental()
            else:
                table = DeltaTable(folder)
            self._tables[folder] = table, _commit(folder, table)
            return table


def _commit(folder: Path, table: DeltaTable) -> tuple[int, ...] | None:
    """Return what tells the file of a table's latest known commit from another; None: it is gone."""
    try:
        file = (folder / "_delta_log" / f"{table.version():020}.json").stat()
    except FileNotFoundError:
        return None
    return file.st_ino, file.st_mtime_ns, file.st_size


def is_readable(delta: DeltaTable) -> bool:
    """Return whether delta-rs reads the table: not if rows are marked as deleted (seen in 1.6)."""
    return "deletionVectors" not in (delta.protocol().reader_features or ())


def query(statement: str, registered: Mapping[str, DeltaTable]) -> pa.Table:
    """Return the rows of a query over tables, given by the names that it has for them.

    It goes past Arrow's own reader of delta-rs, whose threads call Python, which aborts if it is about to end
    (``terminate called``, seen with deltalake 1.6).

    Raises:
        FraudlakeError: a file of a table is gone.
    """
    engine = QueryBuilder()
    for name, delta in registered.items():
        engine.register(name, delta)
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
    """Return the files of a table as it is now, from its log."""
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
