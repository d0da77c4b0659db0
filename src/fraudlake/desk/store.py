"""Store: tables of a lake become Arrow rows, and rows are written, without Spark where there is no need for it."""

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
from fraudlake.sql_text import one_of

if TYPE_CHECKING:
    from fraudlake.lake import Lake
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Store(ABC):
    """Reads a lake's tables and inserts rows."""

    settings: Settings
    """The settings, with the lake's own definition."""
    name: str
    """The lake's name for people: its folder, or catalog and schema."""
    keeps_answers = False
    """Whether the same query again costs nothing while its tables stay as they are."""
    explode = "explode"
    """The function in SQL that gives a row for each part of a list."""

    @property
    def short_name(self) -> str:
        """The name for files that others get: of a folder the last part, since its path says whose machine it is."""
        return self.name.rpartition("/")[2]

    def _defined(self) -> Settings:
        """Return the settings with the lake's own definition."""
        recorded = self.query(f"SELECT * FROM {tables.SILVER_DEFINITION.name}", tables.SILVER_DEFINITION)
        return self.settings.defined(Recorded.of(recorded.to_pylist()).values)

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Return whether a table is there."""

    def has_rows(self, table: Table) -> bool:
        """Return whether a table has rows."""
        return len(self.query(f"SELECT 1 AS present FROM {table.name} LIMIT 1", table)) > 0

    @abstractmethod
    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query; one of tables that are not there has no rows.

        Args:
            statement: SQL that Spark and DataFusion have in common, with the plain names of tables;
                :func:`fraudlake.sql_text.literal` writes texts, since there are no parameters. Times are in UTC.
            read: the tables that it names.
        """

    @abstractmethod
    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names, of which the lake may know nothing.

        Args:
            statement: a query in the SQL of the engine; it only reads.
            names: words of it. Those that are tables of a lake on this machine are read.
        """

    def in_turn(self) -> AbstractContextManager[Any]:
        """Wait until no other person of this process writes, if all would otherwise begin again and again.

        That is so if Delta takes one commit at a time, such as that of a numbered event. A turn has no other within.
        """
        return nullcontext()

    def together(self, carry_out: Callable[[Any, Sequence[Asked]], list[Answer]], asked: Asked) -> Answer:
        """Carry something out, perhaps at once with what others of this process ask for at the same time.

        Args:
            carry_out: carries out, in a store, all that it is given, and returns an answer to each in the same order.
            asked: what is asked for.
        """
        (answer,) = carry_out(self, [asked])
        return answer

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
    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert, in one commit, all rows, or none if the key of one of them is in a table.

        Args:
            table: the table, which is made if it is not there.
            rows: rows in its columns, with distinct keys. They are few.
            key: column without nulls that identifies a row.
        """

    @abstractmethod
    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace, in one commit, the rows of a table that fulfil a condition in SQL, as all the new ones do."""

    def write_file(self, name: str, content: bytes) -> None:
        """Write an attached file, which is there as a whole or not at all; one of the name is replaced."""
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
        # A row that is there matches every new one.
        is_there = one_of(f"t.{key}", rows[key].to_pylist())
        merge.merge(self._lake, new, table, is_there, "WHEN NOT MATCHED THEN INSERT *")

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        new = self._lake.session.createDataFrame(complete(rows, table)).write.format("delta").mode("overwrite")
        conflict.retried(lambda: new.option("replaceWhere", condition).saveAsTable(self._lake.name_of(table)))


def complete(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows in the columns of a table; those that they lack are null."""
    if rows.schema.equals(table.schema):
        return rows
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in table.schema
    ]
    return pa.table(columns, schema=table.schema)
