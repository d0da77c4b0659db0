"""Store: tables of a lake become Arrow rows, and rows are written, without Spark where there is no need for it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from fraudlake import tables
from fraudlake.errors import UsageError
from fraudlake.lake import conflict
from fraudlake.lake.definition import Recorded

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from fraudlake.lake import Lake
    from fraudlake.lake.delta_rs_writer import DeltaRsWriter
    from fraudlake.settings import Settings
    from fraudlake.tables import Table


class Store(ABC):
    """Reads a lake's tables and inserts rows."""

    settings: Settings
    """The settings, with the lake's own definition."""
    name: str
    """The lake's name for people: its folder, or catalog and schema."""

    def _defined(self) -> Settings:
        """Return the settings with the lake's own definition."""
        recorded = self.query(f"SELECT * FROM {tables.SILVER_DEFINITION.name}", tables.SILVER_DEFINITION)
        return self.settings.defined(Recorded.of(recorded.to_pylist()).values)

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Return whether a table is there."""

    @abstractmethod
    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query; one of tables that are not there has no rows.

        Args:
            statement: SQL that Spark and DataFusion have in common, with the plain names of tables;
                :func:`fraudlake.lake.sql_text.literal` writes texts, since there are no parameters. Times are in UTC.
            read: the tables that it names.
        """

    @abstractmethod
    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows, in one commit; columns that they lack are null. The table is made if it is not there."""

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert, in one commit, the rows whose keys are not in a table; of two that insert a key at once, one does.

        Args:
            table: the table, which is made if it is not there.
            rows: rows in its columns, with distinct keys. They are few.
            keys: columns without nulls that identify a row.
        """

    @abstractmethod
    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace, in one commit, the rows of a table that fulfil a condition in SQL, as all the new ones do."""


def store_of(lake: Lake) -> Store:
    """Return the store of a lake that is open."""
    return SparkStore(lake) if lake.folder is None else LocalStore(lake.settings)


class LocalStore(Store):
    """A lake on this machine. It is read and written by delta-rs, and neither starts Spark nor loads pyspark.

    Raises:
        MissingLakeError: there is no lake.
        FraudlakeError: another version of fraudlake made it.
    """

    def __init__(self, settings: Settings) -> None:
        """Open the lake that the settings name."""
        from fraudlake.lake import lake_format

        self.root = settings.lake.absolute()
        self.name = str(self.root)
        lake_format.require(self.root)
        self.settings = settings
        self.settings = self._defined()

    def has(self, table: Table) -> bool:
        """Return whether a table is there."""
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(str(self._folder(table)))

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`.

        Raises:
            UsageError: a table has deleted rows that delta-rs does not see.
        """
        from fraudlake.lake import delta_rs_reader

        registered = {table.name: self._open(table) if self.has(table) else self._stand_in(table) for table in read}
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
        conflict.retried(lambda: self._writer(table).insert_rows(complete(rows, table), keys))

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        from deltalake import write_deltalake

        made = complete(rows, table)
        conflict.retried(lambda: write_deltalake(self._open(table), made, mode="overwrite", predicate=condition))

    def _make(self, table: Table) -> None:
        from deltalake import DeltaTable
        from filelock import FileLock

        with FileLock(self.root / ".lock"):
            if not self.has(table):
                folder = self._folder(table)
                shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed here: it has no commit
                DeltaTable.create(folder, table.schema, configuration=dict(table.properties))

    def _writer(self, table: Table) -> DeltaRsWriter:
        from fraudlake.lake import compaction, delta_rs_reader
        from fraudlake.lake.delta_rs_writer import DeltaRsWriter, is_plain

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
        from deltalake import DeltaTable

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
        from deltalake import DeltaTable

        return DeltaTable.create(self._stand_ins / table.name, table.schema, mode="ignore")


class SparkStore(Store):
    """A lake that is open in Spark, such as one in a workspace in the compute of a job."""

    def __init__(self, lake: Lake) -> None:
        """Read and write through a lake's session."""
        self._lake = lake
        self.settings, self.name = lake.settings, lake.name

    def has(self, table: Table) -> bool:
        """Return whether a table is there."""
        return self._lake.has(table)

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`."""
        for table in read:
            self._lake.read(table).createOrReplaceTempView(table.name)
        return self._lake.session.sql(statement).toArrow()

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        conflict.retried(lambda: self._lake.writer(table).write(complete(rows, table), "append"))

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        from fraudlake.lake import merge

        new = self._lake.session.createDataFrame(complete(rows, table))
        merge.merge(self._lake, new, table, merge.same(keys), "WHEN NOT MATCHED THEN INSERT *")

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        new = self._lake.session.createDataFrame(complete(rows, table)).write.format("delta").mode("overwrite")
        conflict.retried(lambda: new.option("replaceWhere", condition).saveAsTable(self._lake.name_of(table)))


def of(lake: Lake) -> Store:
    """Return the tables of a lake that is open; one on this machine is read without Spark."""
    return SparkStore(lake) if lake.settings.is_in_workspace else LocalStore(lake.settings)


def complete(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows in the columns of a table; those that they lack are null."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in table.schema
    ]
    return pa.table(columns, schema=table.schema)
