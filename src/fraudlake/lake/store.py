"""Store: the interface through which a lake's tables are queried and few rows written, with or without Spark."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fraudlake import tables
from fraudlake.lake.definition import Recorded
from fraudlake.settings.features import typed

if TYPE_CHECKING:
    from datetime import date, timedelta

    from fraudlake.lake.commit import Commit, Detail
    from fraudlake.lake.data_file import DataFile
    from fraudlake.settings import Settings
    from fraudlake.tables import Table

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Snapshot:
    """A table as it was in a version."""

    table: Table
    version: int

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name


class Store(ABC):
    """Queries a lake's tables, and writes few rows to them.

    :class:`fraudlake.lake.local_store.LocalStore` is a lake on this machine, without Spark;
    :class:`fraudlake.lake.spark_store.SparkStore` is one that is open in Spark, as in a job of a workspace;
    :class:`fraudlake_workspace.warehouse.WarehouseStore` is one that a SQL warehouse answers for.
    """

    settings: Settings
    """The settings, with the lake's own definition."""
    name: str
    """The lake's name for people: its folder, or catalog and schema."""
    keeps_answers = False
    """Whether a repeated query is free until its tables change."""

    @property
    def short_name(self) -> str:
        """The name for files that leave this machine: a folder's last part, since its path may name a person."""
        return self.name.rpartition("/")[2]

    def _defined(self) -> Settings:
        """Return the settings with the lake's own definition."""
        recorded = self.rows(tables.SILVER_DEFINITION)
        return self.settings.defined(Recorded.of(recorded.to_pylist()).values)

    @abstractmethod
    def user_name(self) -> str:
        """Return the user of the workspace, or of the operating system, who reads and writes the tables."""

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Return whether a table exists."""

    @abstractmethod
    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the few rows of a query; a missing table counts as empty.

        Args:
            statement: a ``SELECT`` that both Spark and DataFusion support, with plain table names and without
                parameters: use :func:`fraudlake.text.sql_text.literal` for texts. Times are in UTC. ``explode`` becomes
                DataFusion's ``unnest``. DataFusion converts names without quotes to lower case, so names with capital
                letters are in backticks.
            read: the tables that it names.
        """

    def rows(self, table: Table) -> pa.Table:
        """Return all rows of a small table."""
        return self.query(f"SELECT * FROM {table.name}", table)

    def has_rows(self, table: Table, condition: str = "true") -> bool:
        """Return whether a table has rows, or rows that fulfil a condition in SQL."""
        return len(self.query(f"SELECT 1 AS present FROM {table.name} WHERE {condition} LIMIT 1", table)) > 0

    def count_by_day(self, table: Table, condition: str = "true") -> dict[date, int]:
        """Count the rows of a table that fulfil a condition in SQL, or all, by their ``date``."""
        counted = f"SELECT date, count(*) AS total FROM {table.name} WHERE {condition} GROUP BY date"
        return {row["date"]: row["total"] for row in self.query(counted, table).to_pylist()}

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

    def together(self, carry_out: Callable[[Any, Sequence[Request]], list[Answer]], request: Request) -> Answer:
        """Run a call, possibly batched with concurrent calls of this process.

        Args:
            carry_out: handles a batch of requests in a store, and returns their answers in the same order.
            request: the request.
        """
        (answer,) = carry_out(self, [request])
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


class LakeStore(Store):
    """The store of an open lake, which also has the versions of its tables."""

    @abstractmethod
    def query(self, statement: str, *read: Table | Snapshot, given: pa.Table | None = None) -> pa.Table:
        """Return the few rows of a query: see :meth:`Store.query`.

        Args:
            statement: the query.
            read: the tables that it names, now or in a version.
            given: rows without nested columns, which the query names ``given``.
        """

    def count(self, table: Table | Snapshot, condition: str = "true") -> int:
        """Count the rows of a table that fulfil a condition in SQL, or all."""
        counted = self.query(f"SELECT count(*) AS total FROM {table.name} WHERE {condition}", table)
        return int(counted["total"][0].as_py())

    @abstractmethod
    def version(self, table: Table) -> int:
        """Return a table's current version."""

    @abstractmethod
    def history(self, table: Table, limit: int | None = None) -> list[Commit]:
        """Return a table's commits in its log, the newest first; at most ``limit``."""

    def data_version(self, table: Table) -> int:
        """Return the table version that last changed its rows."""
        return max((commit.version for commit in self.history(table) if commit.changes_rows), default=-1)

    @abstractmethod
    def detail(self, table: Table) -> Detail:
        """Return a table's metadata from its log."""

    def identity(self, table: Table) -> str:
        """Return the id that Delta gave a table when it was made; a table made in its place has another one."""
        return self.detail(table).id

    @abstractmethod
    def column_types(self, table: Table) -> dict[str, str]:
        """Return the columns that a table has now: their types in SQL, by name."""

    @abstractmethod
    def files(self, table: Table) -> list[DataFile]:
        """Return the files of a table as it is now."""

    def may_have_unused_files(self, table: Table, retention: timedelta) -> bool:
        """Return whether VACUUM may find files to remove; true if only VACUUM can tell."""
        return True

    def remove_old_log(self, table: Table) -> None:
        """Remove old commits from a table's log, if no writer does so by itself."""


def declared(table: Table, settings: Settings) -> Table:
    """Return a table with the columns and features that settings declare for it."""
    return tables.with_declared(table, settings.silver_columns, typed(settings.features, settings.silver_columns))


def complete(rows: pa.Table, table: Table) -> pa.Table:
    """Return rows with the columns of a table; missing columns are null."""
    if rows.schema.equals(table.schema):
        return rows
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in table.schema
    ]
    return pa.table(columns, schema=table.schema)
