"""Warehouse: the store over a SQL warehouse of a workspace, without Spark."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from databricks.sdk.errors import NotFound

from fraudlake import tables
from fraudlake.errors import FraudlakeError
from fraudlake.lake import conflict
from fraudlake.lake.store import Store, complete
from fraudlake.text.sql_text import is_in, value
from fraudlake_workspace.client import asking, connect
from fraudlake_workspace.sql import Sql, warehouse

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from fraudlake.settings import Settings
    from fraudlake.tables import Table


class WarehouseStore(Store):
    """A lake in a workspace, read and written through a SQL warehouse with the credentials of the client."""

    def __init__(self, settings: Settings, client: WorkspaceClient | None = None) -> None:
        """Read and write through the setting ``warehouse``.

        Args:
            settings: the settings, which name catalog and schema.
            client: the client of the workspace; by default that of the environment or the default profile.
        """
        self._client = client = client or connect(None)
        chosen = warehouse(client, settings.warehouse)
        self._sql = Sql(client, str(chosen.id), str(settings.catalog), str(settings.schema_name))
        self.name = f"{settings.catalog}.{settings.schema_name}"
        self._there = {row[1] for row in self._sql.rows("SHOW TABLES")}
        self.settings = settings
        self.settings = self._defined()

    def user_name(self) -> str:
        """Return the user of the credentials: see :meth:`Store.user_name`."""
        return str(self.query("SELECT current_user() AS name")["name"][0].as_py())

    def has(self, table: Table) -> bool:
        """Return whether a table exists."""
        return table.name in self._there

    def query(self, statement: str, *read: Table) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`."""
        empty = [f"{one.name} AS (SELECT {_nulls(one)} WHERE false)" for one in read if not self.has(one)]
        return self._sql.table(f"WITH {', '.join(empty)} {statement}" if empty else statement)

    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names: see :meth:`Store.ask`."""
        return self._sql.table(statement)

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        self._require(table)
        self._sql.rows(f"INSERT INTO {table.name} {_values(complete(rows, table), table)}")

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        self._merge(table, rows, " AND ".join(f"t.{key} = s.{key}" for key in keys))

    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows or none: see :meth:`Store.insert_all`."""
        # One existing key makes the condition true for all new rows, so that none is inserted.
        self._merge(table, rows, is_in(f"t.{key}", rows[key].to_pylist()))

    def write_file(self, name: str, content: bytes) -> None:
        """Write an attached file to its volume: see :meth:`Store.write_file`."""
        path = f"{self.settings.attachments_path}/{name}"
        with asking(self._client, "the volume of attached files"):
            self._client.files.upload(path, io.BytesIO(content), overwrite=True)

    def read_file(self, name: str) -> bytes | None:
        """Return an attached file: see :meth:`Store.read_file`."""
        path = f"{self.settings.attachments_path}/{name}"
        with asking(self._client, "the volume of attached files"):
            try:
                body = self._client.files.download(path).contents
            except NotFound:
                return None
            assert body is not None  # a download has contents
            with body:
                return body.read()

    def _merge(self, table: Table, rows: pa.Table, same: str) -> None:
        """Insert the rows that match no row of a table."""
        self._require(table)
        source = _values(complete(rows, table), table)
        merging = f"MERGE INTO {table.name} t USING ({source}) s ON {same} WHEN NOT MATCHED THEN INSERT *"
        conflict.retried(lambda: self._sql.rows(merging))

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        self._require(table)
        source = _values(complete(rows, table), table)
        replacing = f"INSERT INTO {table.name} REPLACE WHERE {condition} {source}"
        conflict.retried(lambda: self._sql.rows(replacing))

    def _require(self, table: Table) -> None:
        if not self.has(table):
            raise FraudlakeError(tables.missing(self.name, table.name))


def _values(rows: pa.Table, table: Table) -> str:
    """Return rows as a query of literals."""
    types = {column.name: column.type for column in table.fields}
    listed = [
        f"({', '.join(f'CAST({value(one)} AS {types[name]})' for name, one in row.items())})"
        for row in rows.to_pylist()
    ]
    # Spark's parser overflows its stack at a thousand SELECTs with UNION ALL (seen in 4.2).
    return f"SELECT * FROM (VALUES {', '.join(listed)}) AS given({', '.join(rows.column_names)})"


def _nulls(table: Table) -> str:
    return ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in table.fields)
