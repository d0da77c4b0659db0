"""Spark writer: Spark computes and commits the rows, by the API that classic sessions and Spark Connect share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from fraudlake.lake import merge
from fraudlake.lake.commit import PASSED_OVER
from fraudlake.lake.rows import persisted
from fraudlake.lake.writer import Compute, Mode, Transaction, Writer

if TYPE_CHECKING:
    from datetime import date

    from pyspark.sql import DataFrame

    from fraudlake.lake.data_file import DataFile
    from fraudlake.lake.lake import Lake
    from fraudlake.tables import Table


class SparkWriter(Writer):
    """Writes a table of any lake.

    Args:
        lake: the lake, in the session of the rows.
        table: the table.
    """

    rewrites_partitions = True

    def __init__(self, lake: Lake, table: Table) -> None:
        """Write a table of a lake."""
        self._lake = lake
        self._table = lake.table(table)

    @property
    def _name(self) -> str:
        return self._lake.name_of(self._table)

    def append(
        self,
        rows: DataFrame,
        transaction: Transaction | None = None,
        compute: Compute | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append the rows of a DataFrame: see :meth:`Writer.append`."""
        if compute is not None:
            rows = rows.mapInArrow(compute, self._table.columns)
        self._save(rows, "append", transaction, metadata)

    def write(
        self,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Mode,
        transaction: Transaction | None = None,
        metadata: str | None = None,
    ) -> None:
        """Append Arrow rows, or overwrite the table with them: see :meth:`Writer.write`."""
        table = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
        self._save(self._lake.session.createDataFrame(table).coalesce(1), mode, transaction, metadata)

    def _save(self, rows: DataFrame, mode: Mode, transaction: Transaction | None, metadata: str | None) -> None:
        writer = rows.write.format("delta").mode(mode)
        if transaction is not None:
            application, version = transaction
            writer = writer.option("txnAppId", application).option("txnVersion", version)
        if metadata is not None:
            writer = writer.option("userMetadata", metadata)
        writer.saveAsTable(self._name)

    def merge_rows(self, changes: pa.Table, keys: tuple[str, ...]) -> None:
        """Upsert and delete Arrow rows by their keys: see :meth:`Writer.merge_rows`."""
        dates = pc.unique(changes["date"]).to_pylist()
        if dates:
            self.merge(self._lake.session.createDataFrame(changes), keys, dates)

    def merge(self, changes: DataFrame, keys: tuple[str, ...], dates: list[date] | None = None) -> None:
        """Upsert and delete rows by their keys: see :meth:`Writer.merge`."""
        if dates is None:
            with persisted(changes, eager=False) as changes:
                dates = [row["date"] for row in changes.select("date").distinct().collect()]
                self.merge(changes, keys, dates)
        elif dates:
            columns = self._table.column_names
            within = ", ".join(f"DATE '{day}'" for day in dates)
            merge.merge(
                self._lake,
                changes.select(*columns, "gone"),
                self._table,
                f"{merge.same(keys)} AND t.date IN ({within})",
                "WHEN MATCHED AND s.gone THEN DELETE",
                f"WHEN MATCHED AND NOT ({merge.same(columns)}) THEN UPDATE SET *",
                "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *",
            )

    def rewrite(self, files: list[DataFile], by: tuple[str, ...], size: int) -> None:
        """Rewrite the partitions of files: see :meth:`Writer.rewrite`."""
        days = sorted({f"DATE'{file.day}'" if file.day else "NULL" for file in files if "date" in file.partition})
        dated = ", ".join(day for day in days if day != "NULL")
        conditions = [f"date IN ({dated})"] * bool(dated) + ["date IS NULL"] * ("NULL" in days)
        where = f" WHERE {' OR '.join(conditions)}" if conditions else ""
        clustered = f" ZORDER BY ({', '.join(by)})" if by else ""
        self._lake.session_for_files(self._table, size).sql(f"OPTIMIZE {self._name}{where}{clustered}").collect()

    def replace(self, rows: DataFrame, record: dict[str, Any], days: tuple[date, date] | None = None) -> None:
        """Replace the table's rows, or those of some days, in one commit that streams skip.

        Delta's ``RESTORE`` and a plain overwrite can add files without removing any, which streams then take for new
        rows (Databricks documentation, "Restore a Delta table"). So the commit says that it changes no data
        (``dataChange``), as a compaction does. No other process may write the table meanwhile.

        Args:
            rows: rows, in columns of the table; columns that they lack are null. They may be read from the table.
            record: the commit's metadata, which :attr:`Commit.record` returns.
            days: the first and the last ``date`` to replace; None replaces all rows.
        """
        condition = "" if days is None else f"date BETWEEN DATE'{days[0]}' AND DATE'{days[1]}'"
        if condition and "date" not in self._lake.store.detail(self._table).partition_columns:
            # Delta takes such a condition for partitions only.
            others = self._lake.read(self._table).where(f"NOT coalesce({condition}, false)")
            rows = others.unionByName(rows, allowMissingColumns=True)
            condition = ""
        present = [field.name for field in rows.schema]
        missing = [column for column in self._table.fields if column.name not in present]
        rows = rows.select("*", *(F.lit(None).cast(column.type).alias(column.name) for column in missing))
        writer = rows.writeTo(self._name).option("dataChange", "false")
        writer.option("userMetadata", _passed_over(record)).overwrite(F.expr(condition or "true"))

    def remove(self, condition: str, record: dict[str, Any]) -> None:
        """Remove the rows that fulfil a condition in SQL, in one commit, which streams skip.

        It is a replacement by no rows, since not every compute can attach metadata to a ``DELETE``.
        """
        writer = self._lake.read(self._table).limit(0).writeTo(self._name)
        writer.option("userMetadata", _passed_over(record)).overwrite(F.expr(condition))


def _passed_over(record: dict[str, Any]) -> str:
    return json.dumps({PASSED_OVER: True, **record})
