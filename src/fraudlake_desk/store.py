"""Store: the interface through which the desk queries and writes a lake's tables, with or without Spark."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fraudlake import tables
from fraudlake.lake import conflict
from fraudlake.lake.definition import Recorded
from fraudlake.text.sql_text import one_of

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Store(ABC):
    """Reads and writes a lake's tables."""

    settings: Settings
    """The settings, with the lake's own definition."""
    name: str
    """The lake's name for people: its folder, or catalog and schema."""
    keeps_answers = False
    """Whether a repeated query is free until its tables change."""
    explode = "explode"
    """The SQL function that returns a row for each element of a list."""

    @property
    def short_name(self) -> str:
        """The name for files that leave this machine: a folder's last part, since its path may name a person."""
        return self.name.rpartition("/")[2]

    def _defined(self) -> Settings:
        """Return the settings with the lake's own definition."""
        recorded = self.query(f"SELECT * FROM {tables.SILVER_DEFINITION.name}", tables.SILVER_DEFINITION)
        return self.settings.defined(Recorded.of(recorded.to_pylist()).values)

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Return whether a table exists."""

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has rows."""
        return len(self.query(f"SELECT 1 AS present FROM {table.name} LIMIT 1", table)) > 0

    @abstractmethod
    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query; a missing table counts as empty.

        Args:
            statement: SQL that both Spark and DataFusion support, with plain table names and without parameters:
                use :func:`fraudlake.text.sql_text.literal` for texts. Times are in UTC.
            read: the tables that it names.
        """

    @abstractmethod
    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over any tables, also those that are not of the lake.

        Args:
            statement: a read-only query in the SQL of the engine.
            names: the words of the statement; on this machine those that name tables of the lake are registered.
        """

    def in_turn(self) -> AbstractContextManager[Any]:
        """Wait until no other thread of this process writes, where concurrent writers would retry again and again.

        They would if only one commit can succeed, as with numbered events. Turns must not be nested.
        """
        return nullcontext()

    def together(self, carry_out: Callable[[Any, Sequence[Asked]], list[Answer]], asked: Asked) -> Answer:
        """Run a call, possibly batched with concurrent calls of this process.

        Args:
            carry_out: handles a batch of requests in a store, and returns their answers in the same order.
            asked: the request.
        """
        (answer,) = carry_out(self, [asked])
        return answer

    @abstractmethod
    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows in one commit; missing columns are null. The table is created if it does not exist."""

    @abstractmethod
    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert, in one commit, the rows whose keys a table lacks; if two insert a key at once, one succeeds.

        Args:
            table: the table, which is created if it does not exist.
            rows: rows in its columns, with distinct keys. They must be few.
            keys: columns without nulls that identify a row.
        """

    @abstractmethod
    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows in one commit, or none if the table has one of the keys.

        Args:
            table: the table, which is created if it does not exist.
            rows: rows in its columns, with distinct keys. They must be few.
            key: column without nulls that identifies a row.
        """

    @abstractmethod
    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace, in one commit, the rows that fulfil a condition in SQL; all new rows must fulfil it, too."""

    def write_file(self, name: str, content: bytes) -> None:
        """Write an attached file atomically, replacing one of the same name."""
        folder = self.settings.attachments_path
        folder.mkdir(exist_ok=True)
        draft = folder / f".{name}.{uuid.uuid4().hex}.tmp"
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(folder / name)
        finally:
            draft.unlink(missing_ok=True)

    def read_file(self, name: str) -> bytes | None:
        """Return an attached file; None if there is none."""
        try:
            return (self.settings.attachments_path / name).read_bytes()
        except FileNotFoundError:
            return None


class SparkStore(Store):
    """A lake that is open in Spark, as in a job of a workspace."""

    def __init__(self, lake: Lake) -> None:
        """Read and write through a lake's session."""
        self._lake = lake
        self.settings, self.name = lake.settings, lake.name

    def has(self, table: Table) -> bool:
        """Return whether a table exists."""
        return self._lake.has(table)

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`."""
        for table in read:
            self._lake.read(table).createOrReplaceTempView(table.name)
        return self._lake.session.sql(statement).toArrow()

    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names: see :meth:`Store.ask`."""
        return self._lake.session.sql(statement).toArrow()

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        conflict.retried(lambda: self._lake.writer(table).write(complete(rows, table), "append"))

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        from fraudlake.lake import merge

        new = self._lake.session.createDataFrame(complete(rows, table))
        merge.merge(self._lake, new, table, merge.same(keys), "WHEN NOT MATCHED THEN INSERT *")

    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows or none: see :meth:`Store.insert_all`."""
        from fraudlake.lake import merge

        new = self._lake.session.createDataFrame(complete(rows, table))
        # One existing key makes the condition true for all new rows, so that none is inserted.
        is_there = one_of(f"t.{key}", rows[key].to_pylist())
        merge.merge(self._lake, new, table, is_there, "WHEN NOT MATCHED THEN INSERT *")

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        new = self._lake.session.createDataFrame(complete(rows, table)).write.format("delta").mode("overwrite")
        conflict.retried(lambda: new.option("replaceWhere", condition).saveAsTable(self._lake.name_of(table)))


def complete(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows with the columns of a table; missing columns are null."""
    if rows.schema.equals(table.schema):
        return rows
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in table.schema
    ]
    return pa.table(columns, schema=table.schema)
