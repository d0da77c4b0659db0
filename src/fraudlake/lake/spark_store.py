"""Spark store: reads and writes the tables of a lake that is open in Spark, as in a job of a workspace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from fraudlake.lake import conflict, merge
from fraudlake.lake.commit import Commit, Detail
from fraudlake.lake.data_file import DataFile
from fraudlake.lake.store import LakeStore, Snapshot, complete
from fraudlake.text.sql_text import is_in

if TYPE_CHECKING:
    from fraudlake.lake.lake import Lake
    from fraudlake.tables import Table


class SparkStore(LakeStore):
    """A lake that is open in Spark; the session starts when it is first needed."""

    def __init__(self, lake: Lake) -> None:
        """Read and write through a lake's session."""
        self._lake = lake
        self.settings = lake.settings
        self.name = lake.name

    def user_name(self) -> str:
        """Return the user of the session: see :meth:`Store.user_name`."""
        return str(self.query("SELECT current_user() AS name")["name"][0].as_py())

    def has(self, table: Table) -> bool:
        """Return whether a table exists."""
        return self._lake.has(table)

    def query(self, statement: str, *read: Table | Snapshot, given: pa.Table | None = None) -> pa.Table:
        """Return the rows of a query: see :meth:`Store.query`."""
        # Temporary views would cost a request each, and stay in the session.
        named = ", ".join(f"{one.name} AS (SELECT * FROM {self._source(one)})" for one in read)
        if given is not None:
            self._lake.session.createDataFrame(given).createOrReplaceTempView("given")
        return self._lake.session.sql(f"WITH {named} {statement}" if named else statement).toArrow()

    def _source(self, read: Table | Snapshot) -> str:
        if isinstance(read, Snapshot):
            return f"{self._lake.name_of(read.table)} VERSION AS OF {read.version}"
        return self._lake.name_of(read)

    def ask(self, statement: str, names: Collection[str]) -> pa.Table:
        """Return the rows of a query over tables of any names: see :meth:`Store.ask`."""
        return self._lake.session.sql(statement).toArrow()

    def append(self, table: Table, rows: pa.Table) -> None:
        """Append rows: see :meth:`Store.append`."""
        conflict.retried(lambda: self._lake.writer(table).write(complete(rows, table), "append"))

    def insert(self, table: Table, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows whose keys are new: see :meth:`Store.insert`."""
        self._merge(table, rows, merge.same(keys))

    def insert_all(self, table: Table, rows: pa.Table, key: str) -> None:
        """Insert all rows or none: see :meth:`Store.insert_all`."""
        # One existing key makes the condition true for all new rows, so that none is inserted.
        self._merge(table, rows, is_in(f"t.{key}", rows[key].to_pylist()))

    def _merge(self, table: Table, rows: pa.Table, same: str) -> None:
        """Insert the rows that match no row of a table."""
        new = self._lake.session.createDataFrame(complete(rows, table))
        merge.merge(self._lake, new, table, same, "WHEN NOT MATCHED THEN INSERT *")

    def replace(self, table: Table, rows: pa.Table, condition: str) -> None:
        """Replace rows: see :meth:`Store.replace`."""
        new = self._lake.session.createDataFrame(complete(rows, table)).write.format("delta").mode("overwrite")
        conflict.retried(lambda: new.option("replaceWhere", condition).saveAsTable(self._lake.name_of(table)))

    def version(self, table: Table) -> int:
        """Return a table's current version."""
        (latest,) = self._lake.session.sql(f"DESCRIBE HISTORY {self._lake.name_of(table)} LIMIT 1").collect()
        return int(latest["version"])

    def history(self, table: Table, limit: int | None = None) -> list[Commit]:
        """Return a table's commits in its log, the newest first; at most ``limit``."""
        latest = "" if limit is None else f" LIMIT {limit}"
        history = self._lake.session.sql(f"DESCRIBE HISTORY {self._lake.name_of(table)}{latest}").selectExpr(
            "version",
            "operation",
            "unix_millis(timestamp) AS timestamp",
            "operationParameters",
            "operationMetrics",
            "engineInfo",
            "userMetadata",
        )
        return [Commit.of(row.asDict()) for row in history.collect()]

    def detail(self, table: Table) -> Detail:
        """Return a table's metadata from its log."""
        detail = self._lake.session.sql(f"DESCRIBE DETAIL {self._lake.name_of(table)}")
        row = detail.select("*", F.unix_millis("createdAt").alias("created_millis")).collect()[0]
        layout = (tuple(row["partitionColumns"]), tuple(row["clusteringColumns"]))
        return Detail(row["id"], *layout, row["properties"], row["numFiles"] < 2, row["created_millis"])

    def column_types(self, table: Table) -> dict[str, str]:
        """Return the columns that a table has now: their types in SQL, by name."""
        columns = self._lake.read(table).schema
        return {column.name: column.dataType.simpleString().upper() for column in columns}

    def files(self, table: Table) -> list[DataFile]:
        """Return the files of a table as it is now."""
        columns = self.detail(table).partition_columns
        file = F.col("_metadata")
        files = self._lake.read(table).select(
            file["file_path"].alias("path"),
            file["file_size"].alias("size"),
            F.unix_millis(file["file_modification_time"]).alias("millis"),
            *(F.col(column).cast("string") for column in columns),
        )
        return [
            DataFile(row["path"], row["size"], row["millis"], {column: row[column] for column in columns})
            for row in files.distinct().collect()
        ]
